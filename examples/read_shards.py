"""Reads several shards of one dataset in turns."""

import sys

import penstock.tf as tf


def dataset(folder: str):
    files = tf.data.Dataset.list_files(f"{folder}/shards/train-*.tfrecord")
    return files.interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE
    )


def main(folder: str) -> None:
    print(sum(1 for _ in dataset(folder)), "records")


if __name__ == "__main__":
    main(sys.argv[1])
