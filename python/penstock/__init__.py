"""penstock opens the training data people already have, as it lies."""

from __future__ import annotations

from penstock.dataset import Dataset, Shard, open
from penstock.errors import (
    ChangedError,
    ChecksumError,
    FormatError,
    InternalError,
    LimitError,
    PenstockError,
    RecordIndexError,
    SchemaError,
    StaleIndexError,
    StateError,
    TruncatedError,
    UnsupportedError,
)
from penstock.format import SkippedRegion, Summary
from penstock.limits import Limits

__all__ = [
    "Dataset",
    "Shard",
    "SkippedRegion",
    "Summary",
    "open",
    "ChangedError",
    "ChecksumError",
    "FormatError",
    "InternalError",
    "LimitError",
    "Limits",
    "PenstockError",
    "RecordIndexError",
    "SchemaError",
    "StaleIndexError",
    "StateError",
    "TruncatedError",
    "UnsupportedError",
]
