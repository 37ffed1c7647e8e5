"""Adds a field to each record of a file, and writes the records to a new file."""

import sys

import penstock.tf as tf


# Returns the label of an image; replace it with your own logic.
def calculate_label(image_bytes):
    return "somelabel"


def append_field(tfrecord_path_in, tfrecord_path_out):
    with tf.io.TFRecordWriter(tfrecord_path_out) as writer:
        for raw_record in tf.data.TFRecordDataset(tfrecord_path_in):
            example = tf.train.Example()
            example.ParseFromString(raw_record.numpy())

            # Add the new field
            new_label = calculate_label(example.features.feature["image"].bytes_list.value[0])
            example.features.feature["label"].bytes_list.value.append(new_label.encode())

            writer.write(example.SerializeToString())


def main(folder: str) -> None:
    append_field(f"{folder}/input.tfrecord", f"{folder}/output.tfrecord")


if __name__ == "__main__":
    main(sys.argv[1])
