"""Writing of records to new files."""
