"""Writes one record for each row of a table, with one feature for each of its columns."""

import sys
from collections.abc import Iterable
from typing import Any

import penstock.tf as tf

ROWS = [{"int_col": i, "byte_col": b"row %d" % i, "float_col": i / 4} for i in range(1000)]


def main(folder: str, data: Iterable[dict[str, Any]] = ROWS) -> None:
    # create a writer
    tfrecord_writer = tf.io.TFRecordWriter(f"{folder}/rows.tfrecord")

    # make an Example for each row
    for row in data:
        # with a feature for each column
        example = tf.train.Example(
            features=tf.train.Features(
                feature={
                    "int_col": tf.train.Feature(
                        int64_list=tf.train.Int64List(value=[row["int_col"]])
                    ),
                    "byte_col": tf.train.Feature(
                        bytes_list=tf.train.BytesList(value=[row["byte_col"]])
                    ),
                    "float_col": tf.train.Feature(
                        float_list=tf.train.FloatList(value=[row["float_col"]])
                    ),
                }
            )
        )
        # serialize and write it
        tfrecord_writer.write(example.SerializeToString())

    # close the writer
    tfrecord_writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
