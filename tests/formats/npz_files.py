"""npz archives in memory, and what penstock reads from them."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.storage import MemoryStorage


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def opened(data: bytes, **options: Any) -> ps.Dataset:
    storage = MemoryStorage({"a.npz": data})
    return ps.open("a.npz", storage=storage, index="never", format="npz", **options)


def table(data: bytes, **options: Any) -> pa.Table:
    dataset = opened(data, **options)
    return pa.Table.from_batches(list(dataset.scan()), dataset.schema)


def member(name: str = "x", array: Any = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.arange(5) if array is None else array)
    return out.getvalue()


def lists_file() -> bytes:
    """Columns that take several arrays."""
    return npz(
        **{
            "tokens#offsets": np.array([0, 2, 2, 5]),
            "tokens#values": np.arange(5, dtype=np.int32),
            "name#offsets": np.array([0, 1, 3, 3]),
            "name#utf8": np.frombuffer("aé".encode(), np.uint8),
            "label#codes": np.array([1, 0, 1], np.uint8),
            "label#names#offsets": np.array([0, 3, 6]),
            "label#names#utf8": np.frombuffer(b"catdog", np.uint8),
            "score": np.array([0.5, 0.0, 1.5]),
            "score#valid": np.array([True, False, True]),
        }
    )
