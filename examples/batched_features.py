"""Passes batches of parsed features from files to Keras."""

import sys

import keras

import penstock.tf as tf

SEED = 7


# how the files are read
def tfrecord_reader_fn(filenames):
    return tf.data.TFRecordDataset(filenames, compression_type="GZIP")


# the type of each feature
features_spec = {
    "int_col": tf.io.FixedLenFeature([], dtype=tf.int64, default_value=-1),
    "float_col": tf.io.FixedLenFeature([2], dtype=tf.float32),
    "label": tf.io.FixedLenFeature([], dtype=tf.int64),
}
# the feature that is the label
label_key = "label"
# the number of Examples in a batch
batch_size = 64


def write(folder: str, num_rows: int = 256) -> list[str]:
    """Writes two compressed files to read."""
    paths = [f"{folder}/001.tfrecord", f"{folder}/002.tfrecord"]
    for part, path in enumerate(paths):
        with tf.io.TFRecordWriter(path, tf.io.TFRecordOptions("GZIP")) as writer:
            for i in range(part, num_rows, 2):
                feature = {
                    "int_col": tf.train.Feature(int64_list=tf.train.Int64List(value=[i])),
                    "float_col": tf.train.Feature(
                        float_list=tf.train.FloatList(value=[i / num_rows, 1 - i / num_rows])
                    ),
                    "label": tf.train.Feature(
                        int64_list=tf.train.Int64List(value=[int(2 * i >= num_rows)])
                    ),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
    return paths


def dataset(file_pattern: list[str]):
    return tf.data.experimental.make_batched_features_dataset(
        file_pattern=file_pattern,
        batch_size=batch_size,
        features=features_spec,
        reader=tfrecord_reader_fn,
        label_key=label_key,
        shuffle_seed=SEED,
    )


def main(folder: str):
    train_ds = dataset(write(folder))
    inputs = {
        "int_col": keras.Input((), name="int_col", dtype="int64"),
        "float_col": keras.Input((2,), name="float_col"),
    }
    outputs = keras.layers.Dense(1, activation="sigmoid")(inputs["float_col"])
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="adam", loss="binary_crossentropy")
    # The dataset repeats for ever, so an epoch is defined by its number of steps.
    return model.fit(train_ds, steps_per_epoch=4, epochs=2, verbose=0)


if __name__ == "__main__":
    print(main(sys.argv[1]).history)
