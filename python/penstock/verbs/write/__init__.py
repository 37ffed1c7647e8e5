"""Data written to new files."""
