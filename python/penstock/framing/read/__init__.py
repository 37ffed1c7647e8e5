"""Framed shards: chunks, and records by number."""
