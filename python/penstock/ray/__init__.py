"""penstock on a cluster of Ray (`pip install 'penstock[ray]'`): docs/guide/ray.md."""

from __future__ import annotations

from penstock.ray._cluster import Cluster
from penstock.ray._read import read
from penstock.ray._write import write

__all__ = ["Cluster", "read", "write"]
