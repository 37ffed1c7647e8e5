"""Adds a field of a different type by assigning a feature to its name, which protobuf does not allow."""

import sys

import penstock.tf as tf


# Returns the height of an image; replace it with your own logic.
def calculate_height(image_bytes):
    return 256


def append_integer_field(tfrecord_path_in, tfrecord_path_out):
    with tf.io.TFRecordWriter(tfrecord_path_out) as writer:
        for raw_record in tf.data.TFRecordDataset(tfrecord_path_in):
            example = tf.train.Example()
            example.ParseFromString(raw_record.numpy())

            # Compute the height from the image
            height = calculate_height(example.features.feature["image"].bytes_list.value[0])

            new_feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[height]))
            example.features.feature["height"] = new_feature

            writer.write(example.SerializeToString())


def main(folder: str) -> None:
    append_integer_field(f"{folder}/input.tfrecord", f"{folder}/output.tfrecord")


if __name__ == "__main__":
    main(sys.argv[1])
