"""Writes one record for each image: its bytes, its label and its size."""

import sys
from collections.abc import Sequence

import penstock.tf as tf


def _bytes_feature(value):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64_feature(value):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def main(folder: str, labels: Sequence[int] = [i % 10 for i in range(1000)]) -> None:
    with tf.io.TFRecordWriter(f"{folder}/data.tfrecord") as writer:
        for i in range(len(labels)):
            # Read the image
            with open(f"{folder}/images/{i}.jpg", "rb") as file:
                image_data = file.read()

            # The features of the record
            feature = {
                "image": _bytes_feature(image_data),
                "label": _int64_feature(labels[i]),
                "height": _int64_feature(224),
                "width": _int64_feature(224),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))

            # Write it
            writer.write(example.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])
