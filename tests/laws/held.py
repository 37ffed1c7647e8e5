"""The records that the laws write into each format, which the format can hold unchanged.

Formats that can hold any columns use the general records. A format that can hold only some columns (labels and
images, or one array) has its own entry here.
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
from penstock.columns.types import ImageType, fixed_tensors
from penstock.contract.format import Format
from penstock.formats import FORMATS
from penstock.formats.npz._columns import ENDINGS
from penstock.payloads.images import reencode

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


def beton_table(num_records: int) -> pa.Table:
    """Columns that a .beton can hold: numbers, bytes, JSON, tensors and images."""
    rng = np.random.default_rng(4)
    pixels = rng.integers(0, 256, (num_records, 12), np.uint8)
    pictures = pa.array([b"P6\n2 2\n255\n" + one.tobytes() for one in pixels], pa.binary())
    jpegs = reencode(pictures, "jpeg").storage
    table = some_table(num_records).select(["id", "text"])
    texts = pa.array([f'{{"n": {n}}}' for n in range(num_records)], pa.json_())
    return (
        table.add_column(1, "weight", pa.array(rng.standard_normal(num_records)))
        .append_column("vector", fixed_tensors(rng.standard_normal((num_records, 2, 3))))
        .append_column("json", texts)
        .append_column("image", pa.ExtensionArray.from_storage(ImageType(), jpegs))
    )


def image_table(num_records: int) -> pa.Table:
    """Labels and images, as a RecordIO pack has them."""
    rng = np.random.default_rng(5)
    images = [JPEG + rng.bytes(int(size)) for size in rng.integers(0, 900, num_records)]
    return pa.table(
        {
            "label": pa.array(rng.standard_normal(num_records).astype(np.float32)),
            "id": pa.array(rng.integers(0, 1 << 64, num_records, np.uint64)),
            "id2": pa.array(np.arange(num_records, dtype=np.uint64)),
            "image": pa.array(images, pa.binary()),
        }
    )


JPEG = b"\xff\xd8\xff\xe0"
_MAGIC = b"\x0a\x23\xd7\xce"
_uint64s = st.integers(0, (1 << 64) - 1)
# Difficult for a pack's framing: its magic, at any offset.
_bodies = st.lists(st.one_of(st.binary(max_size=9), st.just(_MAGIC)), max_size=6).map(b"".join)


@st.composite
def image_packs(draw: st.DrawFn) -> pa.RecordBatch:
    """Records of a RecordIO pack, whose labels are numbers or lists, or payloads alone."""
    num_records = draw(st.integers(1, 12))
    rows = {"min_size": num_records, "max_size": num_records}
    if draw(st.integers(0, 3)) == 0:
        return pa.record_batch({"data": pa.array(draw(st.lists(_bodies, **rows)), pa.binary())})
    number = st.floats(width=32, allow_nan=False)
    if draw(st.booleans()):
        labels = pa.array(draw(st.lists(number, **rows)), pa.float32())
    else:
        lists = st.lists(number, min_size=1, max_size=4)
        labels = pa.array(draw(st.lists(lists, **rows)), pa.list_(pa.float32()))
    images = [JPEG + body for body in draw(st.lists(_bodies, **rows))]
    return pa.record_batch(
        {
            "label": labels,
            "id": pa.array(draw(st.lists(_uint64s, **rows)), pa.uint64()),
            "id2": pa.array(draw(st.lists(_uint64s, **rows)), pa.uint64()),
            "image": pa.array(images, pa.binary()),
        }
    )


@dataclass(frozen=True)
class Held:
    """Records for one format."""

    table: Callable[[int], pa.Table] = some_table
    """Makes this many records with the same columns, each different from the others."""
    batches: Callable[[], st.SearchStrategy[pa.RecordBatch]] | None = strategies.batches
    """Any records that the format can hold, or None if only `table` is used."""
    small_columns: tuple[str, ...] | None = ("id", "score")
    """The columns of a small file in which every byte is changed; None for all columns."""
    cuts_unseen: int = 0
    """How many truncations of a file of 12 records cannot be detected, because complete records (or no bytes at all)
    are left."""


def array_table(num_records: int) -> pa.Table:
    """Columns whose values have one size each, as arrays require."""
    rng = np.random.default_rng(4)
    pixels = rng.integers(0, 256, (num_records, 4, 25), dtype=np.uint8)
    return pa.table(
        {
            "id": pa.array(np.arange(num_records)),
            "score": pa.array(rng.standard_normal(num_records).astype(np.float32)),
            "good": pa.array(rng.integers(0, 2, num_records).astype(bool)),
            "pixels": fixed_tensors(pixels),
            "digest": pa.array([rng.bytes(400) for _ in range(num_records)], pa.binary(400)),
        }
    )


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


def npz_batches() -> st.SearchStrategy[pa.RecordBatch]:
    """Records whose fields have no name that npz uses for the parts of a column."""

    def fits(batch: pa.RecordBatch) -> bool:
        return not any(ending in name for name in batch.schema.names for ending in ENDINGS)

    return strategies.batches().filter(fits)


HELD: dict[str, Held] = {
    "beton": Held(beton_table, batches=None, small_columns=("id", "weight"), cuts_unseen=0),
    "tfrecord": Held(cuts_unseen=12),
    "npy": Held(table=array_table, batches=None, small_columns=None, cuts_unseen=0),
    "npz": Held(batches=npz_batches, cuts_unseen=0),
    "hdf5": Held(batches=None, cuts_unseen=0),
    "webdataset": Held(cuts_unseen=0),
    "msgpack": Held(cuts_unseen=12),
    "recordio": Held(image_table, image_packs, small_columns=None, cuts_unseen=12),
    "imagefolder": Held(table=some_images, batches=None, small_columns=("image", "label")),
}

WRITABLE = [fmt for fmt in FORMATS if fmt.info.can_write]
FILES = [fmt for fmt in WRITABLE if not fmt.info.is_folder]
"""The formats whose shards are files, which can be truncated and have bits to flip."""


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
