"""Overlays: fields kept beside a shard and joined when it is read."""
