"""What the laws write into each format: records that it holds as they are.

A format that holds any columns takes the general ones. One that holds only some (labels and images,
one array) has its own line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import penstock as ps
import strategies
from penstock.format import Format
from penstock.formats import FORMATS
from penstock.types import ImageType

NUM_RECORDS = 5000


def some_table(num_records: int) -> pa.Table:
    """Columns of every kind, large enough for many chunks."""
    rng = np.random.default_rng(3)
    words = [f"word {n % 97}".encode() for n in range(num_records)]
    lists = [list(range(n % 4 + (n == 0) * 2)) for n in range(num_records)]
    return pa.table(
        {
            "id": pa.array(np.arange(num_records)),
            "score": pa.array(rng.standard_normal(num_records).astype(np.float32)),
            "text": pa.array([rng.bytes(400) + word for word in words], pa.binary()),
            "tokens": pa.array(lists, pa.list_(pa.int64())),
        }
    )


@dataclass(frozen=True)
class Held:
    """Records for one format."""

    table: Callable[[int], pa.Table] = some_table
    """So many records of the same columns, each different from the others."""
    batches: Callable[[], st.SearchStrategy[pa.RecordBatch]] | None = strategies.batches
    """Any records that it holds, or None where `table` is all the choice there is."""
    small_columns: tuple[str, ...] | None = ("id", "score")
    """Columns of a small file, in which every byte is tried; None for all."""
    cuts_unseen: int = 1
    """Of the lengths to which a file of 12 records may be cut, how many leave whole records and
    nothing that tells of the cut (or no bytes at all)."""


def some_images(num_records: int) -> pa.Table:
    """Small images in the order of their classes."""
    rng = np.random.default_rng(4)
    pixels = rng.integers(0, 256, (num_records, 5, 4, 3), np.uint8)
    image = ps.encode_images(pixels, "png").storage
    classes = pa.array(["ant", "bee", "cat"], pa.string())
    codes = pa.array(np.sort(rng.integers(0, 3, num_records)).astype(np.int32))
    return pa.table(
        {
            "image": pa.ExtensionArray.from_storage(ImageType(), image),
            "label": pa.DictionaryArray.from_arrays(codes, classes),
            "id": pa.array(np.arange(num_records)),
        }
    )


HELD: dict[str, Held] = {
    "tfrecord": Held(cuts_unseen=12),
    "imagefolder": Held(table=some_images, batches=None, small_columns=("image", "label")),
}

WRITABLE = [fmt for fmt in FORMATS if fmt.info.can_write]
FILES = [fmt for fmt in WRITABLE if not fmt.info.is_folder]
"""Formats whose shards are files, which can be cut and have bits."""


def held(fmt: Format) -> Held:
    return HELD.get(fmt.info.name, Held())


@cache
def _table(name: str) -> pa.Table:
    return HELD.get(name, Held()).table(NUM_RECORDS)


def table_of(fmt: Format) -> pa.Table:
    """The records that the laws write into a format: 5,000, the same at each call."""
    return _table(fmt.info.name)


def small_table(fmt: Format) -> pa.Table:
    """Twelve records of few columns."""
    columns = held(fmt).small_columns
    table = table_of(fmt).slice(0, 12)
    return table if columns is None else table.select(list(columns))
