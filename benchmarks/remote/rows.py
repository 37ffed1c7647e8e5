"""The rows of the table, and what they must reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Measure = Literal["rate", "seconds", "cpu"]
TRANSFER = "transfer + 1 round trip"
CURL, BEST, CLIENT = "curl, 8 streams", "the best rival", "its client alone"


@dataclass(frozen=True)
class Goal:
    """What a row must reach: a ratio to another row (higher is better), or a number of seconds at most."""

    of: str = ""
    ratio: float = 0.0
    seconds: float = 0.0
    work: str = ""
    """The work of the other row, if it is not the same."""


@dataclass(frozen=True)
class Row:
    """What one program does. `job` names the function in the module `module` that does it."""

    work: str
    engine: str
    module: Literal["ours", "curl", "rivals"]
    job: str
    is_rival: bool = False
    is_slow: bool = False
    """It runs in the first round only."""


@dataclass(frozen=True)
class Work:
    """Rows that do the same, and the measure in which they are compared."""

    name: str
    says: str
    measure: Measure
    goals: tuple[Goal, ...] = ()
    server: Literal["link", "loopback"] = "link"


WORKS = (
    Work("scan tfrecord", "all records in order", "rate", (Goal(CURL, 0.9), Goal(BEST, 0.95))),
    Work(
        "scan tar",
        "all records in order",
        "rate",
        (Goal(CURL, 0.9, work="scan tfrecord"), Goal("webdataset", 3.0)),
    ),
    Work("scan parquet", "50 files", "rate", (Goal(CURL, 0.9), Goal(BEST, 0.95))),
    Work(
        "scan parquet, one file",
        "the same records in one file",
        "rate",
        (Goal(CURL, 0.9, work="scan parquet"), Goal(BEST, 0.95)),
    ),
    Work("take", "256 random records of an open dataset", "seconds", (Goal(seconds=0.34),)),
    Work(
        "first batch",
        "open 50 shards, and read 256 records of a shuffled epoch",
        "seconds",
        (Goal(seconds=0.5),),
    ),
    Work(
        "epoch tfrecord",
        "all records, shuffled in blocks",
        "rate",
        (Goal("penstock", 0.9, work="scan tfrecord"),),
    ),
    Work(
        "epoch parquet",
        "the same from Parquet",
        "rate",
        (Goal("penstock", 0.9, work="scan parquet"),),
    ),
    Work(
        "cpu",
        "processor time of a scan, without a link",
        "cpu",
        (Goal(CLIENT, 1 / 1.3), Goal("s3fs", 2.0)),
        "loopback",
    ),
)


def _rows() -> list[Row]:
    ours = [
        Row("scan tfrecord", "penstock", "ours", "scan tfrecord"),
        Row("scan tar", "penstock", "ours", "scan tar"),
        Row("scan parquet", "penstock", "ours", "scan parquet"),
        Row("scan parquet, one file", "penstock", "ours", "scan parquet, one file"),
        Row("take", "penstock", "ours", "take"),
        Row("first batch", "penstock", "ours", "first batch"),
        Row("epoch tfrecord", "penstock, Blocked", "ours", "epoch tfrecord"),
        Row("epoch parquet", "penstock, Blocked", "ours", "epoch parquet"),
        Row("cpu", CLIENT, "ours", "client"),
        Row("cpu", "penstock, bytes only", "ours", "cpu, bytes only"),
        Row("cpu", "penstock", "ours", "cpu"),
    ]
    limits = [
        Row("scan tfrecord", CURL, "curl", "scan tfrecord"),
        Row("scan parquet", CURL, "curl", "scan parquet"),
    ]
    rivals = [
        ("scan tfrecord", "s3fs, bytes only", "s3fs: scan", False),
        ("scan tfrecord", "Lance", "lance: scan", False),
        ("scan tar", "webdataset", "webdataset: scan", True),
        ("scan tar", "webdataset, 4 workers", "webdataset: scan by workers", False),
        ("scan parquet", "pyarrow.dataset", "pyarrow: scan", False),
        ("scan parquet, one file", "pyarrow.dataset", "pyarrow: scan one", False),
        ("take", "boto3, 64 threads, bytes only", "boto3: take", False),
        ("take", "s3fs, bytes only", "s3fs: take", False),
        ("take", "Lance", "lance: take", False),
        ("take", "Streaming", "streaming: take", True),
        ("first batch", "Streaming", "streaming: first", False),
        ("first batch", "webdataset", "webdataset: first", False),
        ("first batch", "Lance", "lance: first", False),
        ("epoch tfrecord", "Streaming", "streaming: epoch", True),
        ("epoch tfrecord", "webdataset, 4 workers", "webdataset: epoch", False),
        ("cpu", "obstore, bytes only", "obstore: cpu", False),
        ("cpu", "boto3, bytes only", "boto3: cpu", False),
        ("cpu", "s3fs, bytes only", "s3fs: cpu", False),
    ]
    others = [Row(w, e, "rivals", j, is_rival=True, is_slow=s) for w, e, j, s in rivals]
    places = {work.name: place for place, work in enumerate(WORKS)}
    return sorted([*limits, *ours, *others], key=lambda row: places[row.work])


ROWS = tuple(_rows())
