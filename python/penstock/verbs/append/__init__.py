"""Records put behind the end of a file."""
