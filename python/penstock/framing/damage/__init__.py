"""Continue reading after damage: find what is lost, and where records continue."""
