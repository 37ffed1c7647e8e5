"""penstock opens the training data people already have, as it lies.

    >>> import penstock as ps
    >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
    >>> ps.open("numbers.tfrecord")[2]
    {'id': 3}

What opening and reading need is imported at once; the other verbs when they are first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from penstock.skipped import SkippedFile

if TYPE_CHECKING:
    from penstock import bench, describe, features
    from penstock.images import decode_images, encode_images
    from penstock.loader.coverage import PlanReport, audit, plan
    from penstock.loader.images import Image
    from penstock.loader.loader import Loader
    from penstock.loader.stats import LoaderStats
    from penstock.orders import (
        Balanced,
        Blocked,
        Buffered,
        Interleaved,
        Mixture,
        Order,
        Sequential,
        Shuffled,
        Weighted,
    )
    from penstock.report import Finding, Report
    from penstock.verbs.append import append
    from penstock.verbs.convert import convert
    from penstock.verbs.diff import diff
    from penstock.verbs.differences import Diff, FieldDiff, RecordsDiff, ValueDiff
    from penstock.verbs.fields import (
        add_fields,
        bake_fields,
        drop_fields,
        rename_fields,
        replace_fields,
    )
    from penstock.verbs.index import index
    from penstock.verbs.info import Info, ShardInfo, info
    from penstock.verbs.observe import ImageSizes
    from penstock.verbs.overlays import OverlayInfo, overlays, remove_overlay
    from penstock.verbs.repair import repair
    from penstock.verbs.schemas import FieldPresence, FileSchema, Schemas, schemas
    from penstock.verbs.stats import FieldStats, Stats, stats
    from penstock.verbs.tally import Histogram, Spread
    from penstock.verbs.verify import verify
    from penstock.verbs.write import write

__all__ = [
    "Balanced",
    "Blocked",
    "Buffered",
    "ChangedError",
    "ChecksumError",
    "Dataset",
    "Diff",
    "FieldDiff",
    "FieldPresence",
    "FieldStats",
    "FileSchema",
    "Finding",
    "FormatError",
    "Histogram",
    "Image",
    "ImageSizes",
    "Info",
    "Interleaved",
    "InternalError",
    "LimitError",
    "Limits",
    "Loader",
    "LoaderStats",
    "Mixture",
    "Order",
    "OverlayInfo",
    "PenstockError",
    "PlanReport",
    "RecordIndexError",
    "RecordsDiff",
    "Report",
    "SchemaError",
    "Schemas",
    "Sequential",
    "Shard",
    "ShardInfo",
    "Shuffled",
    "SkippedFile",
    "SkippedRegion",
    "Spread",
    "StaleIndexError",
    "StateError",
    "Stats",
    "Summary",
    "TruncatedError",
    "UnsupportedError",
    "ValueDiff",
    "Weighted",
    "add_fields",
    "append",
    "audit",
    "bake_fields",
    "bench",
    "convert",
    "decode_images",
    "describe",
    "diff",
    "drop_fields",
    "encode_images",
    "features",
    "index",
    "info",
    "open",
    "overlays",
    "plan",
    "remove_overlay",
    "rename_fields",
    "repair",
    "replace_fields",
    "schemas",
    "stats",
    "verify",
    "write",
]

_LATER = {
    "Balanced": "orders",
    "Blocked": "orders",
    "Buffered": "orders",
    "Diff": "verbs.differences",
    "FieldDiff": "verbs.differences",
    "FieldPresence": "verbs.schemas",
    "FieldStats": "verbs.stats",
    "FileSchema": "verbs.schemas",
    "Finding": "report",
    "Histogram": "verbs.tally",
    "Image": "loader.images",
    "ImageSizes": "verbs.observe",
    "Info": "verbs.info",
    "Interleaved": "orders",
    "Mixture": "orders",
    "Order": "orders",
    "Loader": "loader.loader",
    "LoaderStats": "loader.stats",
    "OverlayInfo": "verbs.overlays",
    "PlanReport": "loader.coverage",
    "RecordsDiff": "verbs.differences",
    "Report": "report",
    "Schemas": "verbs.schemas",
    "Sequential": "orders",
    "ShardInfo": "verbs.info",
    "Shuffled": "orders",
    "Spread": "verbs.tally",
    "Stats": "verbs.stats",
    "ValueDiff": "verbs.differences",
    "Weighted": "orders",
    "add_fields": "verbs.fields",
    "append": "verbs.append",
    "audit": "loader.coverage",
    "bake_fields": "verbs.fields",
    "bench": "bench",
    "convert": "verbs.convert",
    "decode_images": "images",
    "describe": "describe",
    "diff": "verbs.diff",
    "drop_fields": "verbs.fields",
    "encode_images": "images",
    "features": "features",
    "index": "verbs.index",
    "info": "verbs.info",
    "overlays": "verbs.overlays",
    "plan": "loader.coverage",
    "remove_overlay": "verbs.overlays",
    "rename_fields": "verbs.fields",
    "repair": "verbs.repair",
    "replace_fields": "verbs.fields",
    "schemas": "verbs.schemas",
    "stats": "verbs.stats",
    "verify": "verbs.verify",
    "write": "verbs.write",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    where = _LATER.get(name)
    if where is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module = import_module(f"penstock.{where}")
    value = module if where == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
