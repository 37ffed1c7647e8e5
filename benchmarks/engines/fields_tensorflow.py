"""The ways in which users of TensorFlow change the fields of records; listed in `tensorflow.JOBS`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

NEW = "added"


def _job(data: Data, name: str, changed: Callable[[int, bytes], bytes], verb: str) -> Job:
    import tensorflow as tf

    path = Path(os.environ["BENCHMARKS_TMPFS"]) / f"fields-tensorflow-{name}.tfrecord"

    def work(check: bool) -> Outcome:
        records = tf.compat.v1.io.tf_record_iterator(str(data.plain))
        with tf.io.TFRecordWriter(str(path)) as writer:
            for number, record in enumerate(records):
                writer.write(changed(number, record))
        if check:
            _check(path, data.num_records, verb)
        return Outcome(data.num_records)

    return Job(work, after=lambda: path.unlink(missing_ok=True))


def _check(path: Path, num_records: int, verb: str) -> None:
    import tensorflow as tf

    count = 0
    for number, record in enumerate(tf.compat.v1.io.tf_record_iterator(str(path))):
        count += 1
        if number % 997 == 0:
            feature = tf.train.Example.FromString(record).features.feature
            if verb == "drop":
                assert "label" not in feature
            else:
                name = NEW if verb == "add" else "label"
                assert list(feature[name].int64_list.value) == [number]
    assert count == num_records


def splice(data: Data) -> Job:
    """Append the bytes of the new feature to the old Example: the fastest way in Python."""
    import tensorflow as tf

    def changed(number: int, record: bytes) -> bytes:
        more = tf.train.Example()
        more.features.feature[NEW].int64_list.value.append(number)
        return record + more.SerializeToString()

    return _job(data, "splice", changed, "add")


def rewrite(verb: str) -> Callable[[Data], Job]:
    """Parse, change, serialise."""

    def make(data: Data) -> Job:
        import tensorflow as tf

        parse = tf.train.Example.FromString

        def changed(number: int, record: bytes) -> bytes:
            example: Any = parse(record)
            feature = example.features.feature
            if verb == "add":
                feature[NEW].int64_list.value.append(number)
            elif verb == "drop":
                del feature["label"]
            else:
                feature["label"].int64_list.value[:] = [number]
            return example.SerializeToString()

        return _job(data, f"rewrite-{verb}", changed, verb)

    return make


ADD = {"iterator and splice by hand": splice, "parse and rewrite": rewrite("add")}
JOBS = {
    "fields-add-small": ADD,
    "fields-add-large": ADD,
    "fields-drop": {"parse and rewrite": rewrite("drop")},
    "fields-replace": {"parse and rewrite": rewrite("replace")},
}
