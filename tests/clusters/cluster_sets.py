"""Datasets for the tests of verbs on a cluster, and what is left of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps

FORMATS = {
    "x.tfrecord": {},
    "x.tfrecord.gz": {"compression": "gzip"},
    "x.tar": {},
    "x.rec": {},
    "x.parquet": {},
    "x.arrow": {},
    "x.npz": {},
}
SHARDS = 3


def table(count: int = 240) -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {
        "id": np.arange(count),
        "x": rng.random(count).astype(np.float32),
        "text": [f"record {n} " * (n % 7) for n in range(count)],
    }


def shards_in(folder: Path) -> list[str]:
    """Several shards of each of several formats."""
    folder.mkdir(exist_ok=True)
    paths: list[str] = []
    for name, options in FORMATS.items():
        data = table()
        if name.endswith(".npz"):
            data = {"data": data["x"]}
        elif name.endswith(".rec"):
            data = {"data": [text.encode() for text in data["text"]]}
        made = ps.write(data, str(folder / name), num_shards=SHARDS, index=False, **options)
        paths += made.paths
    return paths


def damage(paths: list[str]) -> None:
    """Flip a byte in the middle of every second file, and cut off the end of every fifth."""
    for number, path in enumerate(paths):
        data = bytearray(Path(path).read_bytes())
        if number % 2:
            data[len(data) // 2] ^= 0x55
        if not number % 5:
            del data[-9:]
        Path(path).write_bytes(data)


def files_in(folder: Path) -> dict[str, bytes]:
    """All files below a folder, hidden ones too. Where a sidecar knows the state of its file, which is another for a
    copy, that is not compared."""
    return {
        os.path.relpath(os.path.join(place, name), folder): Path(place, name).read_bytes()
        for place, _, names in os.walk(folder)
        for name in names
    }
