"""penstock on a cluster of Ray (`pip install 'penstock[ray]'`): docs/guide/ray.md."""

from __future__ import annotations

from penstock.ray._cluster import Cluster

__all__ = ["Cluster"]
