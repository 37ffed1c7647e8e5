"""The last chapter of the demo: TensorFlow reads what penstock wrote, and both are timed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import penstock as ps
from penstock.cli.demo_data import VECTOR_LENGTH
from penstock.cli.narrate import Narrator, fastest

_TIMES = 2


@dataclass
class Outcome:
    """What held, what took how long, and which two measurements are of the same work."""

    checks: dict[str, bool] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    pairs: dict[str, tuple[str, str]] = field(default_factory=dict)


def compare(tell: Narrator, paths: Sequence[str], num_records: int) -> Outcome:
    """Read the same files with both."""
    with _quiet():
        tf: Any = importlib.import_module("tensorflow")

    tell.say(
        f"TensorFlow {tf.__version__}, imported into this very process, reads the same files. "
        "Every record's bytes are compared."
    )
    outcome = Outcome()
    theirs = (bytes(record.numpy()) for record in tf.data.TFRecordDataset(paths[0]))
    ours = (
        row for batch in ps.open(paths[0], raw=True).scan() for row in batch["record"].to_pylist()
    )
    outcome.checks["TensorFlow reads the first shard equal"] = _all_equal(theirs, ours)

    def tensorflow_scan() -> int:
        records = tf.data.TFRecordDataset(paths).batch(1024).prefetch(tf.data.AUTOTUNE)
        return sum(int(batch.shape[0]) for batch in records)

    def tensorflow_parse() -> int:
        features = {
            "id": tf.io.FixedLenFeature([], "int64"),
            "label": tf.io.FixedLenFeature([], "int64"),
            "caption": tf.io.FixedLenFeature([], "string"),
            "vector": tf.io.FixedLenFeature([VECTOR_LENGTH], "float32"),
            "tokens": tf.io.VarLenFeature("int64"),
        }

        def parse(batch: Any) -> Any:
            return tf.io.parse_example(batch, features)

        records = tf.data.TFRecordDataset(paths).batch(1024)
        parsed = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        return sum(int(batch["id"].shape[0]) for batch in parsed.prefetch(tf.data.AUTOTUNE))

    def penstock_scan() -> int:
        return sum(batch.num_rows for batch in ps.open(paths, raw=True).scan(batch_records=1024))

    def penstock_parse() -> int:
        return sum(batch.num_rows for batch in ps.open(paths).scan(batch_records=1024))

    tell.code(tensorflow_parse)
    runs: dict[str, Any] = {
        "TensorFlow, raw batches of 1024": tensorflow_scan,
        "penstock, raw batches of 1024": penstock_scan,
        "TensorFlow, parsed batches of 1024": tensorflow_parse,
        "penstock, parsed batches of 1024": penstock_parse,
    }
    for what, run in runs.items():
        seen, outcome.seconds[what] = fastest(run, _TIMES)
        outcome.checks[f"{what}: all records seen"] = seen == num_records
    names = list(runs)
    outcome.pairs = {"reading": (names[0], names[1]), "parsing": (names[2], names[3])}
    return outcome


@contextmanager
def _quiet() -> Generator[None]:
    """Keep what TensorFlow's C++ prints when it is imported out of the tour."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _all_equal(theirs: Iterable[bytes], ours: Iterable[bytes]) -> bool:
    return all(a == b for a, b in zip_longest(theirs, ours))
