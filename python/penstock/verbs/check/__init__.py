"""Verify, repair and index files."""
