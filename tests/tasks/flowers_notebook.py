"""A typical Kaggle notebook: it reads labelled pictures of flowers from TFRecords, augments them, and uses a TPU if
there is one."""

import re

import numpy as np
import tensorflow as tf

AUTO = tf.data.experimental.AUTOTUNE
IMAGE_SIZE = [48, 48]
BATCH_SIZE = 16
CLASSES = ["daisy", "dandelion", "rose", "sunflower", "tulip"]

try:
    tpu = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.config.experimental_connect_to_cluster(tpu)
    strategy = tf.distribute.TPUStrategy(tpu)
except ValueError:
    strategy = tf.distribute.get_strategy()
print("REPLICAS:", strategy.num_replicas_in_sync)


def write_flowers(name, first, count):
    with tf.io.TFRecordWriter(name) as out:
        for n in range(first, first + count):
            waves = np.add.outer(np.arange(48), np.arange(48))[..., None] + [0, 50 * (n % 5), n]
            picture = tf.io.encode_jpeg(tf.constant((waves % 256).astype(np.uint8)))
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[picture.numpy()])),
                "class": tf.train.Feature(int64_list=tf.train.Int64List(value=[n % 5])),
                "id": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"flower%d" % n])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            out.write(example.SerializeToString())


write_flowers("train00-40.tfrec", 0, 40)
write_flowers("train01-30.tfrec", 40, 30)
write_flowers("test00-20.tfrec", 100, 20)
TRAINING = sorted(tf.io.gfile.glob("train*.tfrec"))
TEST = tf.io.gfile.glob("test*.tfrec")


def decode_image(image_data):
    image = tf.image.decode_jpeg(image_data, channels=3)
    image = tf.cast(image, tf.float32) / 255.0
    return tf.reshape(image, [*IMAGE_SIZE, 3])


def read_labeled_tfrecord(example):
    LABELED_TFREC_FORMAT = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "class": tf.io.FixedLenFeature([], tf.int64),
    }
    example = tf.io.parse_single_example(example, LABELED_TFREC_FORMAT)
    return decode_image(example["image"]), tf.cast(example["class"], tf.int32)


def read_unlabeled_tfrecord(example):
    UNLABELED_TFREC_FORMAT = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "id": tf.io.FixedLenFeature([], tf.string),
    }
    example = tf.io.parse_single_example(example, UNLABELED_TFREC_FORMAT)
    return decode_image(example["image"]), example["id"]


def load_dataset(filenames, labeled=True, ordered=False):
    ignore_order = tf.data.Options()
    if not ordered:
        ignore_order.experimental_deterministic = False
    dataset = tf.data.TFRecordDataset(filenames, num_parallel_reads=AUTO)
    dataset = dataset.with_options(ignore_order)
    read = read_labeled_tfrecord if labeled else read_unlabeled_tfrecord
    return dataset.map(read, num_parallel_calls=AUTO)


def data_augment(image, label):
    image = tf.image.random_flip_left_right(image)
    return tf.image.random_saturation(image, 0, 2), label


def get_training_dataset():
    dataset = load_dataset(TRAINING, labeled=True)
    dataset = dataset.map(data_augment, num_parallel_calls=AUTO)
    return dataset.repeat().shuffle(2048).batch(BATCH_SIZE).prefetch(AUTO)


def count_data_items(filenames):
    numbers = [int(re.compile(r"-([0-9]*)\.").search(name).group(1)) for name in filenames]
    return int(np.sum(numbers))


print("images:", count_data_items(TRAINING), count_data_items(TEST))
for image, label in get_training_dataset().take(3):
    print(image.numpy().shape, label.numpy().shape, image.dtype, label.dtype)
    assert 0 <= label.numpy().min() and label.numpy().max() < len(CLASSES)

valid = load_dataset(TRAINING, ordered=True).cache().batch(BATCH_SIZE)
labels = np.concatenate([label.numpy() for _, label in valid])
print("labels:", sorted(np.bincount(labels).tolist()))
pixels = np.concatenate([image.numpy() for image, _ in valid])
print("pixels:", pixels.shape, float(pixels[np.argsort(labels, kind="stable")].astype("f8").sum()))

test_ds = load_dataset(TEST, labeled=False, ordered=True).batch(8)
images_ds = test_ds.map(lambda image, idnum: image)
ids_ds = test_ds.map(lambda image, idnum: idnum).unbatch()
ids = next(iter(ids_ds.batch(count_data_items(TEST)))).numpy().astype("U")
print("ids:", ids.tolist())
print("means:", [round(float(image.numpy().mean()), 4) for image in images_ds])
