"""Overlays: fields stored in a file next to a shard, and joined to its records when the shard is read."""
