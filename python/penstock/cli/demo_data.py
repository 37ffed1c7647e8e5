"""The dataset of `penstock demo`. It is made from a seed, and is the same on every machine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import penstock as ps

_SUBJECTS = [
    "a river under snow",
    "two herons",
    "the last train",
    "a copper kettle",
    "the harbour at dawn",
    "a grey horse",
    "three boats",
    "the night market",
]
VECTOR_LENGTH = 16
NUM_LABELS = 10


def examples(num_records: int) -> pa.Table:
    """Return records such as in training data: a number, a label, a caption, a vector, some tokens."""
    rng = np.random.default_rng(20)
    captions = rng.integers(0, len(_SUBJECTS), (num_records, 2))
    labels = np.minimum(rng.geometric(0.25, num_records) - 1, NUM_LABELS - 1)
    vectors = rng.standard_normal(num_records * VECTOR_LENGTH, np.float32)
    lengths = rng.integers(0, 9, num_records)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = rng.zipf(1.3, int(offsets[-1])).clip(0, 30_000)
    columns = {
        "id": pa.array(np.arange(num_records)),
        "label": pa.array(labels),
        "caption": pa.array([f"{_SUBJECTS[a]}, {_SUBJECTS[b]}" for a, b in captions]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), VECTOR_LENGTH),
        "tokens": pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens)),
    }
    return pa.table(columns)


def pictures(num_records: int) -> pa.Table:
    """Return small PNG images of several sizes, with labels."""
    rng = np.random.default_rng(21)
    sizes = rng.integers(4, 13, (num_records, 2)) * 16
    images = ps.encode_images([_waves(rng, height, width) for height, width in sizes], "png")
    storage = images.storage if isinstance(images, pa.ExtensionArray) else images
    labels = rng.integers(0, NUM_LABELS, num_records)
    return pa.table({"image": storage.cast(pa.binary()), "label": pa.array(labels)})


def _waves(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Return smooth waves with some noise, uint8[height, width, 3]. They compress like photographs."""
    y, x = np.mgrid[0:height, 0:width][:, :, :, None]
    slopes = rng.normal(0, 0.15, (2, 3))
    noise = rng.normal(0, 4, (height, width, 3))
    return (127 + 100 * np.sin(x * slopes[0] + y * slopes[1]) + noise).clip(0, 255).astype(np.uint8)
