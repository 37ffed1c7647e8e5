"""HDF5 files made by the tests, and what penstock reads from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pyarrow as pa

import penstock as ps
from reading import SHARED

CORPUS = SHARED / "corpus" / "hdf5"


def made(tmp_path: Path, name: str = "a.h5", **arrays: Any) -> str:
    """A file with these datasets. A tuple is (data, keyword arguments of create_dataset)."""
    path = str(tmp_path / name)
    with h5py.File(path, "w") as file:
        for key, value in arrays.items():
            data, options = value if isinstance(value, tuple) else (value, {})
            file.create_dataset(key.replace("__", "/"), data=data, **options)
    return path


def opened(path: str, **options: Any) -> ps.Dataset:
    return ps.open(path, index="never", **options)


def table(path: str, **options: Any) -> pa.Table:
    dataset = opened(path, **options)
    return pa.Table.from_batches(list(dataset.scan()), dataset.schema)
