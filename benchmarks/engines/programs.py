"""Programs written for TensorFlow, which TensorFlow and penstock.tf run unchanged: only the import differs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

RECORDS = 100_000
"""TensorFlow needs seconds for this many records, one by one."""
BATCH = 256
IMAGES = 4000

Program = Callable[[Any, Data], Callable[[bool], Outcome]]


def features(tf: Any) -> dict[str, Any]:
    """The features of the small data."""
    return {
        "id": tf.io.FixedLenFeature([], tf.int64),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "embedding": tf.io.FixedLenFeature([16], tf.float32),
        "text": tf.io.FixedLenFeature([], tf.string),
    }


def _batches(dataset: Any, num_records: int) -> Callable[[bool], Outcome]:
    """Loop over batches with a column "id" that counts up from 0."""

    def work(check: bool) -> Outcome:
        count = 0
        for batch in dataset:
            numbers = batch["id"].numpy()
            if check:
                assert numbers[0] == count
                assert batch["embedding"].shape == (len(numbers), 16)
                assert isinstance(batch["text"].numpy()[-1], bytes)
            count += len(numbers)
        assert count == num_records
        return Outcome(count)

    return work


def map_parse(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Parse record by record, then make batches."""
    spec, count = features(tf), min(RECORDS, data.num_records)
    records = tf.data.TFRecordDataset(str(data.plain)).take(count)
    parsed = records.map(
        lambda record: tf.io.parse_single_example(record, spec), num_parallel_calls=tf.data.AUTOTUNE
    )
    return _batches(parsed.batch(BATCH).prefetch(tf.data.AUTOTUNE), count)


def batch_parse(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Make batches, then parse each batch in one call."""
    spec = features(tf)
    records = tf.data.TFRecordDataset([str(path) for path in data.shards]).batch(1024)
    parsed = records.map(
        lambda batch: tf.io.parse_example(batch, spec), num_parallel_calls=tf.data.AUTOTUNE
    )
    return _batches(parsed.prefetch(tf.data.AUTOTUNE), data.num_records)


def iterate(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Loop over the records."""
    count = min(RECORDS, data.num_records)

    def work(check: bool) -> Outcome:
        total = seen = 0
        for record in tf.data.TFRecordDataset(str(data.plain)).take(count):
            total += len(record.numpy())
            seen += 1
        assert seen == count
        assert total > 100 * count
        return Outcome(seen)

    return work


def write(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Write Examples that are built from Python values."""
    path = Path(os.environ["BENCHMARKS_TMPFS"]) / f"programs-{tf.__name__}.tfrecord"
    count = min(RECORDS, data.num_records)
    embedding = [n / 16 for n in range(16)]

    def work(check: bool) -> Outcome:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for n in range(count):
                feature = {
                    "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[n])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[n % 1000])),
                    "embedding": tf.train.Feature(float_list=tf.train.FloatList(value=embedding)),
                    "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"%d" % n])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
        if check:
            spec, seen = features(tf), 0
            for record in tf.data.TFRecordDataset(str(path)):
                if seen % 997 == 0:
                    assert tf.io.parse_single_example(record, spec)["id"].numpy() == seen
                seen += 1
            assert seen == count
        path.unlink()
        return Outcome(count)

    return work


def images(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Decode, resize, scale and batch JPEGs."""
    return _pictures(tf, lambda image: image)


def augment(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Decode, resize, scale, change at random and batch JPEGs."""

    def change(image: Any) -> Any:
        image = tf.image.random_flip_left_right(image)
        image = tf.image.random_brightness(image, 0.1)
        image = tf.image.random_contrast(image, 0.8, 1.2)
        return tf.image.random_saturation(image, 0.8, 1.2)

    return _pictures(tf, change)


def _pictures(tf: Any, change: Callable[[Any], Any]) -> Callable[[bool], Outcome]:
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(serialized: Any) -> Any:
        example = tf.io.parse_single_example(serialized, spec)
        image = tf.io.decode_jpeg(example["image"], channels=3)
        image = tf.image.resize(image, [224, 224])
        image = tf.cast(image, tf.float32) / 255.0
        return change(image), example["label"]

    dataset = tf.data.TFRecordDataset(str(pictures.container(".tfrecord"))).take(IMAGES)
    dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    dataset = dataset.shuffle(100).batch(32).prefetch(tf.data.AUTOTUNE)

    def work(check: bool) -> Outcome:
        count = 0
        for pixels, labels in dataset:
            assert pixels.shape[1:] == (224, 224, 3)
            if check:
                assert 0 < float(pixels.numpy().mean()) < 1
            count += len(labels)
        assert count == IMAGES
        return Outcome(count)

    return work


def small_pictures(change: Callable[[Any, Any], Any]) -> Program:
    """Change small pictures in memory, one by one, and batch them."""

    def program(tf: Any, data: Data) -> Callable[[bool], Outcome]:
        bytes_ = np.random.default_rng(0).integers(0, 256, (2000, 64, 64, 3), np.uint8)
        dataset = tf.data.Dataset.from_tensor_slices(bytes_)
        dataset = dataset.map(lambda image: change(tf, image), tf.data.AUTOTUNE).batch(32)

        def work(check: bool) -> Outcome:
            count = sum(len(batch) for batch in dataset)
            assert count == len(bytes_)
            return Outcome(count)

        return work

    return program


def unbatch(tf: Any, data: Data) -> Callable[[bool], Outcome]:
    """Take rows of 512 numbers apart, and make batches of 128 of them."""
    rows = np.arange(400 * 512, dtype=np.int32).reshape(400, 512)
    dataset = tf.data.Dataset.from_tensor_slices(rows).unbatch().batch(128)

    def work(check: bool) -> Outcome:
        count = sum(len(batch) for batch in dataset)
        assert count == rows.size
        return Outcome(count)

    return work


PROGRAMS: dict[str, Program] = {
    "tf-map-parse": map_parse,
    "tf-batch-parse": batch_parse,
    "tf-iterate": iterate,
    "tf-write": write,
    "tf-images": images,
    "tf-augment": augment,
    "tf-brightness": small_pictures(lambda tf, image: tf.image.adjust_brightness(image, 0.1)),
    "tf-contrast": small_pictures(lambda tf, image: tf.image.adjust_contrast(image, 1.3)),
    "tf-unbatch": unbatch,
}


def jobs(module: str) -> dict[str, dict[str, Callable[[Data], Job]]]:
    """All programs, with the module that `tf` means in them."""

    def job(program: Program) -> Callable[[Data], Job]:
        return lambda data: Job(program(importlib.import_module(module), data))

    return {name: {module: job(program)} for name, program in PROGRAMS.items()}
