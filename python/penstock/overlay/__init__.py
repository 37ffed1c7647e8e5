"""Overlays: fields in a file next to a shard, which are joined to its records when it is read."""
