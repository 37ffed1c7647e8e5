"""penstock opens the training data people already have, as it lies."""

from __future__ import annotations

from penstock import describe, features
from penstock.convert import convert
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
from penstock.info import Info, ShardInfo, info
from penstock.limits import Limits
from penstock.observe import ImageSizes
from penstock.repair import repair
from penstock.report import Finding, Report
from penstock.stats import FieldStats, Stats, stats
from penstock.tally import Histogram, Spread
from penstock.verify import verify
from penstock.write import write

__all__ = [
    "ChangedError",
    "ChecksumError",
    "Dataset",
    "FieldStats",
    "Finding",
    "FormatError",
    "Histogram",
    "ImageSizes",
    "Info",
    "InternalError",
    "LimitError",
    "Limits",
    "PenstockError",
    "RecordIndexError",
    "Report",
    "SchemaError",
    "Shard",
    "ShardInfo",
    "SkippedRegion",
    "Spread",
    "StaleIndexError",
    "StateError",
    "Stats",
    "Summary",
    "TruncatedError",
    "UnsupportedError",
    "convert",
    "describe",
    "features",
    "index",
    "info",
    "open",
    "repair",
    "stats",
    "verify",
    "write",
]
