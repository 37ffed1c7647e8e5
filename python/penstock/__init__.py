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
from penstock.index import index
from penstock.limits import Limits
from penstock.repair import repair
from penstock.report import Finding, Report
from penstock.verify import verify

__all__ = [
    "Dataset",
    "Finding",
    "Report",
    "Shard",
    "SkippedRegion",
    "Summary",
    "index",
    "open",
    "repair",
    "verify",
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
