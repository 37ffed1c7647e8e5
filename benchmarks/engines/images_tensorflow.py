"""tf.data on images: decodes only the crop, and by the quick transform, which is its best."""

from __future__ import annotations

from typing import Any

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome


def crops(data: Data) -> Job:
    """Random resized crops from memory, in any order."""
    import tensorflow as tf

    images = tf.constant(pictures.jpegs())
    side = pictures.SIDE

    def one(image: Any) -> Any:
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
        part = tf.image.resize(part, [side, side], method="bilinear")
        return tf.cast(tf.image.random_flip_left_right(part), tf.uint8)

    def make() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(images)
        dataset = dataset.map(one, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        return dataset.batch(pictures.BATCH).prefetch(2)

    held: list[Any] = []

    def work(check: bool) -> Outcome:
        batches = iter(make())
        held.append(batches)
        count = 0
        while count < pictures.NUM_RECORDS:
            count += next(batches).shape[0]
        return Outcome(count)

    return Job(work, after=held.clear)


JOBS = {"images-crop": {"tf.data, decode_and_crop_jpeg": crops}}
