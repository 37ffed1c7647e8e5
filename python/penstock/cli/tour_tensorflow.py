"""The last chapter of the demo: TensorFlow reads the files that penstock wrote, and both are timed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import penstock as ps
from penstock.cli.demo_data import VECTOR_LENGTH
from penstock.cli.narrate import Narrator


def compare(tour: Narrator, paths: Sequence[str], packed: str, num_records: int) -> None:
    """Read the same files with TensorFlow and penstock."""
    with _quiet():
        tf: Any = importlib.import_module("tensorflow")

    tour.say(
        f"TensorFlow {tf.__version__}, imported into this process, reads the same files. "
        "The bytes of every record of the first shard and of the GZIP file are compared."
    )
    for path, kind in ((paths[0], ""), (packed, "GZIP")):
        theirs = tf.data.TFRecordDataset(path, compression_type=kind).as_numpy_iterator()
        batches = ps.open(path, raw=True).scan()
        ours = (record for batch in batches for record in batch["record"].to_pylist())
        is_equal = all(a == b for a, b in zip_longest(theirs, ours))
        tour.check(f"TensorFlow reads {path} equal", is_equal)

    def tensorflow_parse() -> int:
        features = {
            "id": tf.io.FixedLenFeature([], "int64"),
            "label": tf.io.FixedLenFeature([], "int64"),
            "caption": tf.io.FixedLenFeature([], "string"),
            "vector": tf.io.FixedLenFeature([VECTOR_LENGTH], "float32"),
            "tokens": tf.io.VarLenFeature("int64"),
        }
        records = tf.data.TFRecordDataset(paths).batch(1024)
        parsed = records.map(
            lambda batch: tf.io.parse_example(batch, features), num_parallel_calls=tf.data.AUTOTUNE
        )
        return sum(int(batch["id"].shape[0]) for batch in parsed.prefetch(tf.data.AUTOTUNE))

    def penstock_parse() -> int:
        return sum(batch.num_rows for batch in ps.open(paths).scan(batch_records=1024))

    taken: list[float] = []
    for name, parse in (("TensorFlow", tensorflow_parse), ("penstock", penstock_parse)):
        seen, seconds = tour.run(parse, times=2)
        taken.append(seconds)
        tour.figure(f"{name}, parsed batches of 1024", seconds, num_records)
        tour.check(f"{name} parses all records", seen == num_records)
    tour.result(f"penstock {taken[0] / taken[1]:.1f} times as fast")


@contextmanager
def _quiet() -> Generator[None]:
    """Discard what TensorFlow's C++ code prints during its import."""
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
