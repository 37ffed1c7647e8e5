"""The data set of `penstock demo`: made from a seed, the same on every machine."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pyarrow as pa

_WORDS = [
    "a river under snow",
    "an old mill",
    "two herons",
    "the last train",
    "a field of barley",
    "a copper kettle",
    "children at a well",
    "a stone bridge",
    "the harbour at dawn",
    "an empty theatre",
    "a grey horse",
    "a lantern in fog",
    "three boats",
    "a winter orchard",
    "the night market",
    "a paper kite",
]
VECTOR_LENGTH = 16
NUM_LABELS = 10


def examples(num_records: int) -> pa.Table:
    """Records as training data has them: a number, a label, a caption, a vector, some tokens."""
    rng = np.random.default_rng(20)
    captions = rng.integers(0, len(_WORDS), (num_records, 2))
    labels = np.minimum(rng.geometric(0.25, num_records) - 1, NUM_LABELS - 1)
    vectors = rng.standard_normal(num_records * VECTOR_LENGTH, np.float32)
    lengths = rng.integers(0, 9, num_records)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    tokens = rng.zipf(1.3, int(offsets[-1])).clip(0, 30_000)
    columns = {
        "id": pa.array(np.arange(num_records)),
        "label": pa.array(labels),
        "caption": pa.array([f"{_WORDS[a]}, {_WORDS[b]}" for a, b in captions]),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), VECTOR_LENGTH),
        "tokens": pa.ListArray.from_arrays(pa.array(offsets), pa.array(tokens)),
    }
    return pa.table(columns)


def pictures(num_records: int) -> pa.Table:
    """Small PNG pictures of several sizes, with labels."""
    rng = np.random.default_rng(21)
    sizes = rng.integers(4, 13, (num_records, 2)) * 16
    images = [_png(_waves(rng, int(height), int(width))) for height, width in sizes]
    labels = rng.integers(0, NUM_LABELS, num_records)
    return pa.table({"image": pa.array(images, pa.binary()), "label": pa.array(labels)})


def _waves(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A picture that compresses as pictures do: smooth, with some noise. uint8[height, width, 3]."""
    y, x = np.mgrid[0:height, 0:width][:, :, :, None]
    slopes = rng.normal(0, 0.15, (2, 3))
    noise = rng.normal(0, 4, (height, width, 3))
    return (127 + 100 * np.sin(x * slopes[0] + y * slopes[1]) + noise).clip(0, 255).astype(np.uint8)


def _png(pixels: np.ndarray) -> bytes:
    """An RGB picture as PNG. See the PNG specification, https://www.w3.org/TR/png-3/."""
    height, width, _ = pixels.shape
    # Each line starts with the number of its filter; 0 is none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
