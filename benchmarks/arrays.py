"""The benchmark's rows as arrays, in files that their own libraries write: HDF5, npy and npz.

A small row has an id, a label and 16 floats (80 bytes); a large one has an image of 100 KB and a label. The sum of
all bytes is stored next to each file, and the columns of every reader must have that sum.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import generate
from benchmarks.data import Data

HDF5_FILTERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gzip": {"compression": "gzip", "compression_opts": 4},
    "lzf": {"compression": "lzf"},
}
SUFFIXES = {"hdf5": "h5", "npy": "npy", "npz": "npz"}


def total(columns: Iterable[np.ndarray]) -> int:
    """The sum of all bytes of some arrays."""
    return sum(
        int(np.ascontiguousarray(column).reshape(-1).view(np.uint8).sum(dtype=np.uint64))
        for column in columns
    )


def proved(data: Data, form: str, found: int) -> None:
    """Raises an error if the columns that were read do not have the stored sum."""
    written = json.loads(_sum_path(data, form).read_text())
    if found != written:
        raise ValueError(f"{form}: the columns come to {found}, not {written}")


def copy(data: Data, form: str) -> Path:
    """The file in a form such as "hdf5-gzip", "npy" or "npz-deflated"; makes the file if it is missing."""
    container, _, how = form.partition("-")
    path = data.copy(f"arrays-{form}.{SUFFIXES[container]}")
    if path.exists():
        return path
    columns = _columns(data)
    if container == "npy":
        columns = {name: columns[name] for name in ("embedding", "image") if name in columns}
    part = path.with_name(f"part-{path.name}")
    if container == "hdf5":
        _hdf5(part, columns, HDF5_FILTERS[how])
    elif container == "npy":
        np.save(part, next(iter(columns.values())))
    else:
        (np.savez_compressed if how else np.savez)(part, **columns)
    part.rename(path)
    _sum_path(data, form).write_text(json.dumps(total(columns.values())))
    return path


def _sum_path(data: Data, form: str) -> Path:
    return data.copy(f"arrays-{form}.json")


def _columns(data: Data) -> Mapping[str, np.ndarray]:
    rows = (generate.small_rows if data.size == "small" else generate.large_rows)(data.num_records)
    names = ("id", "label", "embedding") if data.size == "small" else ("image", "label")
    parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for chunk in rows:
        for name, found in parts.items():
            found.append(getattr(chunk, name))
    return {name: np.concatenate(found) for name, found in parts.items()}


def _hdf5(path: Path, columns: Mapping[str, np.ndarray], filters: dict[str, Any]) -> None:
    """Without a filter the datasets are contiguous; otherwise they have chunks of 1,024 small rows or of one large
    row."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, column in columns.items():
            chunk = {}
            if filters:
                rows = 1 if column[0].nbytes > 1 << 16 else 1024
                chunk = {"chunks": (rows, *column.shape[1:])}
            file.create_dataset(name, data=column, **chunk, **filters)
