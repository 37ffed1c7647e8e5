"""What all framed formats share: streams, the walk over frames, the index, surveys of damage."""
