"""TensorFlow, with the settings that were fastest.

The time of a tf.data row ends at the last element: with autotune on, destroying an iterator can wait up to 40 s until
the tuner next wakes up, and that is not reading. `num_parallel_reads` is not used: it passes every record from thread
to thread and makes small records 25 times slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.data import Data
from benchmarks.engines import fields_tensorflow, images_tensorflow, programs
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "tensorflow"
BATCH_RECORDS = {"small": 1024, "large": 16}

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def record_iterator(data: Data) -> Job:
    """The deprecated iterator, still the fastest that TensorFlow has."""
    import tensorflow as tf

    from benchmarks import checks

    def work(check: bool) -> Outcome:
        records = tf.compat.v1.io.tf_record_iterator(str(data.plain))
        if check:
            return Outcome(data.num_records, "payloads", checks.payload_sum(records))
        return Outcome(sum(1 for _ in records))

    return Job(work)


def epoch(
    make: Callable[[], Any],
    num_records: int,
    size: Callable[[Any], int],
    kind: str,
    checksum: Callable[[Any], int],
) -> Job:
    """One pass over a tf.data dataset that stops at the last element."""
    held: list[Iterator[Any]] = []

    def work(check: bool) -> Outcome:
        batches = iter(make())
        held.append(batches)
        count = total = 0
        while count < num_records:
            batch = next(batches)
            count += size(batch)
            if check:
                total = (total + checksum(batch)) & (2**64 - 1)
        return Outcome(count, kind, total)

    return Job(work, after=held.clear)


def raw(
    paths: Callable[[Data], list[Path]],
    compression: str = "",
    *,
    interleave: bool = True,
    autotune: bool = True,
) -> Callable[[Data], Job]:
    """Undecoded records in batches: each file is batched where it is read, or all of them are one stream."""

    def make_job(data: Data) -> Job:
        import tensorflow as tf

        from benchmarks import checks

        names = [str(p) for p in paths(data)]
        batch_records = BATCH_RECORDS[data.size]

        def make() -> Any:
            if interleave:
                dataset = tf.data.Dataset.from_tensor_slices(names).interleave(
                    lambda n: tf.data.TFRecordDataset(n, compression).batch(batch_records),
                    cycle_length=2,
                    num_parallel_calls=2,
                    deterministic=True,
                )
            else:
                dataset = tf.data.TFRecordDataset(names, compression).batch(batch_records)
            options = tf.data.Options()
            options.autotune.enabled = autotune
            return dataset.with_options(options).prefetch(2)

        return epoch(
            make,
            data.num_records,
            lambda b: b.shape[0],
            "payloads",
            lambda b: checks.payload_sum(b.numpy().tolist()),
        )

    return make_job


def records_one_by_one(data: Data) -> Job:
    """A plain Python loop, which is tf.data's fastest way for large records."""
    import tensorflow as tf

    from benchmarks import checks

    return epoch(
        lambda: tf.data.TFRecordDataset(str(data.plain)),
        data.num_records,
        lambda record: 1,
        "payloads",
        lambda r: checks.payload_sum([r.numpy()]),
    )


def parsed(interleave: bool) -> Callable[[Data], Job]:
    """`parse_example` on batches of 1,024, to dense tensors."""

    def make_job(data: Data) -> Job:
        import tensorflow as tf

        from benchmarks import checks

        features = {
            "id": tf.io.FixedLenFeature([], tf.int64),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "embedding": tf.io.FixedLenFeature([16], tf.float32),
            "text": tf.io.FixedLenFeature([], tf.string),
        }
        names = [str(p) for p in data.shards]

        def parse(batch: Any) -> Any:
            return tf.io.parse_example(batch, features)

        def make() -> Any:
            if interleave:
                return (
                    tf.data.Dataset.from_tensor_slices(names)
                    .interleave(
                        lambda n: tf.data.TFRecordDataset(n).batch(1024).map(parse),
                        cycle_length=2,
                        num_parallel_calls=2,
                        deterministic=True,
                    )
                    .prefetch(2)
                )
            return (
                tf.data.TFRecordDataset(names)
                .batch(1024)
                .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
                .prefetch(2)
            )

        def checksum(batch: Any) -> int:
            numbers = {n: batch[n].numpy() for n in ("id", "label", "embedding")}
            return checks.texts_sum(numbers, batch["text"].numpy().tolist())

        return epoch(make, data.num_records, lambda b: b["id"].shape[0], "columns", checksum)

    return make_job


def write(folder_name: str) -> Callable[[Data], Job]:
    """Python objects to Examples to a file, in the faster of the two common styles."""

    def make_job(data: Data) -> Job:
        import tensorflow as tf

        from benchmarks import generate
        from benchmarks.engines import written

        rows = list(generate.small_rows(data.num_records))
        path = Path(os.environ[folder_name]) / "tensorflow.tfrecord"

        def work(check: bool) -> Outcome:
            with tf.io.TFRecordWriter(str(path)) as writer:
                for chunk in rows:
                    columns = zip(
                        chunk.id.tolist(),
                        chunk.label.tolist(),
                        chunk.embedding.tolist(),
                        chunk.text,
                        strict=True,
                    )
                    for number, label, embedding, text in columns:
                        example = tf.train.Example()
                        feature = example.features.feature
                        feature["id"].int64_list.value.append(number)
                        feature["label"].int64_list.value.append(label)
                        feature["embedding"].float_list.value.extend(embedding)
                        feature["text"].bytes_list.value.append(text)
                        writer.write(example.SerializeToString())
            return written.outcome([path], check)

        return Job(work, after=lambda: written.remove([path]))

    return make_job


def import_time(data: None) -> Job:
    """`import tensorflow` in a new interpreter."""
    from benchmarks.engines import imports

    return imports.job("tensorflow")


JOBS = {
    "scan-small": {
        "tf_record_iterator": record_iterator,
        "tf.data, interleave(file -> batch)": raw(lambda d: d.shards),
        "tf.data, one stream, autotune off": raw(
            lambda d: d.shards, interleave=False, autotune=False
        ),
    },
    "scan-large": {
        "tf_record_iterator": record_iterator,
        "tf.data, record by record": records_one_by_one,
        "tf.data, one stream, autotune off": raw(
            lambda d: [d.plain], interleave=False, autotune=False
        ),
    },
    "parse-small": {
        "tf.data, interleave(file -> batch -> parse)": parsed(True),
        "tf.data, batch, parse with autotune": parsed(False),
    },
    "gzip-read": {
        "tf.data, 4 files, interleave(file -> batch)": raw(lambda d: d.gzip_shards, "GZIP"),
        "tf.data, 1 file, batch": raw(lambda d: [d.gzip], "GZIP", interleave=False),
    },
    "write-small": {"TFRecordWriter and Example": write("BENCHMARKS_TMPFS")},
    "write-small-disk": {"TFRecordWriter and Example": write("BENCHMARKS_DISK")},
    "import-time": {"import tensorflow": import_time},
    "memory-small": {"tf.data, interleave(file -> batch -> parse)": parsed(True)},
    "memory-large": {"tf.data, record by record": records_one_by_one},
    **fields_tensorflow.JOBS,
    **images_tensorflow.JOBS,
    **programs.jobs("tensorflow"),
}
