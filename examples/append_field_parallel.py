"""Adds a field on several threads: a function passed to `map` changes the records, which it gets by `.numpy()`."""

import sys

import penstock.tf as tf


def process_record(record):
    # The same as in append_field.py, for one record
    example = tf.train.Example()
    example.ParseFromString(record.numpy())
    example.features.feature["label"].bytes_list.value.append(b"somelabel")
    return example.SerializeToString()


def append_field_parallel(tfrecord_path_in, tfrecord_path_out):
    dataset = tf.data.TFRecordDataset(tfrecord_path_in)
    dataset = dataset.map(process_record, num_parallel_calls=tf.data.AUTOTUNE)
    with tf.io.TFRecordWriter(tfrecord_path_out) as writer:
        for record in dataset:
            writer.write(record.numpy())


def main(folder: str) -> None:
    append_field_parallel(f"{folder}/input.tfrecord", f"{folder}/output.tfrecord")


if __name__ == "__main__":
    main(sys.argv[1])
