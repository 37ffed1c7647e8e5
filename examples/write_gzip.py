"""Writes records to a compressed file."""

import sys
from collections.abc import Sequence

import penstock.tf as tf


def main(folder: str, labels: Sequence[int] = range(1000)) -> None:
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(f"{folder}/data.tfrecord.gz", options=options) as writer:
        for i in range(len(labels)):
            with open(f"{folder}/images/{i}.jpg", "rb") as file:
                image = tf.train.BytesList(value=[file.read()])
            label = tf.train.Int64List(value=[labels[i]])
            feature = {
                "image": tf.train.Feature(bytes_list=image),
                "label": tf.train.Feature(int64_list=label),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1])
