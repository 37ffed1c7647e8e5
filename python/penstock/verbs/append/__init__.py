"""Appending records to existing files and datasets."""
