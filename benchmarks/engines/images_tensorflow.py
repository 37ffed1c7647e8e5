"""tf.data on images. It decodes only the crop, with the fast transform, which is its best setting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome


def _crop(image: Any) -> Any:
    """A random resized crop of a JPEG, flipped at random. Only the crop is decoded."""
    import tensorflow as tf

    shape = tf.image.extract_jpeg_shape(image)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        tf.zeros([0, 0, 4]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    top, left, _ = tf.unstack(begin)
    height, width, _ = tf.unstack(size)
    window = tf.stack([top, left, height, width])
    part = tf.image.decode_and_crop_jpeg(image, window, channels=3, dct_method="INTEGER_FAST")
    part = tf.image.resize(part, [pictures.SIDE, pictures.SIDE], method="bilinear")
    return tf.cast(tf.image.random_flip_left_right(part), tf.uint8)


def _from_memory() -> Any:
    import tensorflow as tf

    images = tf.data.Dataset.from_tensor_slices(tf.constant(pictures.jpegs()))
    return images.map(_crop, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)


def _from_tfrecord() -> Any:
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def one(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        return _crop(example["image"]), example["label"]

    records = tf.data.TFRecordDataset(pictures.container(".tfrecord")).shuffle(1000)
    return records.map(one, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)


def epoch(make: Callable[[], Any]) -> Callable[[Data], Job]:
    """The batches of an epoch; two batches are prefetched."""

    def job(data: Data) -> Job:
        held: list[Any] = []

        def work(check: bool) -> Outcome:
            batches = iter(make().batch(pictures.BATCH).prefetch(2))
            held.append(batches)
            count = 0
            while count < pictures.NUM_RECORDS:
                batch = next(batches)
                count += (batch[0] if isinstance(batch, tuple) else batch).shape[0]
            return Outcome(count)

        return Job(work, after=held.clear)

    return job


JOBS = {
    "images-crop": {"tf.data, decode_and_crop_jpeg": epoch(_from_memory)},
    "images-load-tfrecord": {"tf.data, shuffle(1000), decode_and_crop_jpeg": epoch(_from_tfrecord)},
}
