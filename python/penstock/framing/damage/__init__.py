"""Reading on after damage: what is lost, and where records go on."""
