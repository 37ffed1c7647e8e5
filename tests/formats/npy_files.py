"""npy files in memory, arrays of every dtype, and what penstock reads from them."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.formats.numpy.npy_header import MAGIC
from penstock.storage import MemoryStorage
from reading import SHARED

GOLDEN = SHARED / "specs" / "golden" / "neighbours"


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=False)
    return out.getvalue()


def with_header(text: str, data: bytes = b"", version: int = 1) -> bytes:
    """An npy file with any header text."""
    encoded = text.encode("utf-8" if version == 3 else "latin-1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return MAGIC + bytes((version, 0)) + size + encoded + data


def opened(data: bytes, **options: Any) -> ps.Dataset:
    storage = MemoryStorage({"a.npy": data})
    return ps.open("a.npy", storage=storage, index="never", format="npy", **options)


def table(data: bytes, **options: Any) -> pa.Table:
    dataset = opened(data, **options)
    return pa.Table.from_batches(list(dataset.scan()), dataset.schema)


TIMES = ["2020-01-02", "1969-12-31", "NaT"]
ARRAYS: dict[str, np.ndarray] = {
    **{
        f"{order}{kind}": np.array([[1, 0], [7, 3]]).astype(f"{order}{kind}")
        for order in "<>"
        for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    },
    "bool": np.array([True, False, True] * 5),
    "bool tensors": np.array([[True, False, True]] * 3),
    "bytes": np.array([b"a", b"", b"b\0c", b"four"]),
    "bytes by shape": np.array([[b"a", b"xyz"], [b"", b"q"]]),
    "text": np.array(["é", "", "a\0b", "𝄞x"]),
    "text, big endian": np.array(["é", "abc"]).astype(">U3"),
    **{f"time {u}": np.array(TIMES, f"M8[{u}]") for u in ("D", "s", "ms", "us", "ns")},
    "time, big endian": np.array(TIMES, ">M8[s]"),
    **{f"duration {u}": np.array([5, -7], f"m8[{u}]") for u in ("s", "ms", "us", "ns")},
    "three axes": np.arange(24).reshape(2, 3, 4),
    "an empty axis": np.zeros((3, 0, 2), np.float32),
    "no records": np.zeros((0, 4), np.int16),
}
