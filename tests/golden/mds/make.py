"""Writes the folders next to it: python make.py, with mosaicml-streaming 0.13 installed.

That library depends on torch, so the tests do not depend on it; its output is kept here.
"""

from decimal import Decimal
from pathlib import Path

import numpy as np
from PIL import Image
from streaming import MDSWriter

HERE = Path(__file__).parent
COLUMNS = {
    "a": "int",
    "b": "bytes",
    "g": "png",
    "h": "float16",
    "j": "json",
    "lg": "list[png]",
    "lj": "list[jpeg]",
    "lp": "list[pil]",
    "n": "ndarray",
    "n2": "ndarray:float32",
    "nf": "ndarray:float64:2,3",
    "p": "pil",
    "s": "str",
    "sd": "str_decimal",
    "sf": "str_float",
    "si": "str_int",
    "u": "uint8",
}


def record(i):
    """What test_mds_peer.py expects of record i."""
    return {
        "a": i,
        "b": bytes([i]) * (i * 7),
        "g": Image.new("RGB", (4, 4), (1, 2, i)),
        "h": np.float16(i / 8),
        "j": {"i": i, "x": [1]},
        "lg": [Image.new("RGB", (2, 2), (i, 0, 0))] * (i % 2 + 1),
        "lj": [Image.new("RGB", (4, 4))] * (i % 3 + 1),
        "lp": [Image.new("L", (2, i % 3 + 1), i)] * (i % 3 + 1),
        "n": np.arange(i % 4 + 1, dtype=np.int16),
        "n2": np.full((i % 3 + 1, 2), i, np.float32),
        "nf": np.full((2, 3), i, np.float64),
        "p": Image.new("RGB", (i % 5 + 1, 3), (i, 2, 3)),
        "s": f"é{i}",
        "sd": Decimal(i) / Decimal(4),
        "sf": i / 7,
        "si": -(10**25) + i,
        "u": i,
    }


def write(name, columns, compression, hashes):
    settings = {"compression": compression, "hashes": hashes, "size_limit": 5000}
    with MDSWriter(out=str(HERE / name), columns=columns, **settings) as writer:
        for i in range(12):
            writer.write({key: record(i)[key] for key in columns})


write("all", COLUMNS, None, ["sha1", "xxh64"])
for codec, algorithm in [
    ("zstd:7", "sha1"),
    ("gz", "md5"),
    ("br", "xxh64"),
    ("bz2", "sha256"),
    ("snappy", "blake2b"),
]:
    few = {key: COLUMNS[key] for key in ("a", "b", "s")}
    write(codec.split(":")[0], few, codec, [algorithm])
