"""Writes images with labels, found by their names; reports and skips an image that cannot be found."""

import os
import sys
from collections.abc import Sequence

import penstock.tf as tf

FILENAMES = [f"{i}.jpg" for i in range(1001)]
LABELS = [i % 10 for i in range(1001)]


def main(folder: str, filenames: Sequence[str] = FILENAMES, labels: Sequence[int] = LABELS) -> None:
    base_path = os.path.join(folder, "images")

    # create a writer
    tfrecord_writer = tf.io.TFRecordWriter(os.path.join(folder, "images.tfrecord"))

    # iterate over images in the directory
    for name, label in zip(filenames, labels):
        img_path = os.path.join(base_path, name)
        # Try to read the image file. TensorFlow's error is not Python's FileNotFoundError, so with
        # TensorFlow this program stops at the first missing file. penstock's error is both.
        try:
            raw_file = tf.io.read_file(img_path)
        except FileNotFoundError:
            print("Couldn't read file  {}".format(img_path))
            continue

        # make an Example of the image and its label
        example = tf.train.Example(
            features=tf.train.Features(
                feature={
                    "image": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[raw_file.numpy()])
                    ),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
            )
        )
        # write it
        tfrecord_writer.write(example.SerializeToString())

    # close the writer
    tfrecord_writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
