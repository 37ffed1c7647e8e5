"""What a dataset says about one of its files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a dataset."""

    path: str
    format: str
    num_records: int
    num_bytes: int
