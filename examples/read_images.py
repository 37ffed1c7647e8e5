"""Parses, decodes, resizes, shuffles and batches records of images."""

import sys

import penstock.tf as tf

# The features of a record
feature_description = {
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
    "height": tf.io.FixedLenFeature([], tf.int64),
    "width": tf.io.FixedLenFeature([], tf.int64),
}


def parse_example(serialized):
    example = tf.io.parse_single_example(serialized, feature_description)
    image = tf.io.decode_jpeg(example["image"], channels=3)
    image = tf.image.resize(image, [224, 224])
    image = tf.cast(image, tf.float32) / 255.0
    return image, example["label"]


def dataset(folder: str):
    dataset = tf.data.TFRecordDataset(f"{folder}/data.tfrecord")
    dataset = dataset.map(parse_example, num_parallel_calls=tf.data.AUTOTUNE)
    return dataset.shuffle(1000).batch(32).prefetch(tf.data.AUTOTUNE)


def main(folder: str) -> None:
    for images, labels in dataset(folder):
        # A training step would be here
        print(images.shape, labels.shape)


if __name__ == "__main__":
    main(sys.argv[1])
