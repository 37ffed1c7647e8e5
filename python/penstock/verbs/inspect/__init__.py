"""Information about a dataset: its files, fields, schemas and statistics."""
