"""ArrayRecord."""
