"""Verification, repair and indexing of files."""
