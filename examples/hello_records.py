"""Writes two records and reads them."""

import os
import sys

import penstock.tf as tf


def main(folder: str) -> None:
    path = os.path.join(folder, "sample.tfrecord")
    with tf.io.TFRecordWriter(path) as w:
        w.write(b"Record A")
        w.write(b"Record B")

    for record in tf.data.TFRecordDataset(path):
        print(record)


if __name__ == "__main__":
    main(sys.argv[1])
