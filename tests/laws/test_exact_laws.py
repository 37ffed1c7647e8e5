"""If a format cannot hold a value exactly, that is noted, or refused with `exact=True`. The test uses random columns
of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import ImageType, fixed_tensors
from penstock.contract.format import Format
from penstock.formats import FORMATS
from penstock.payloads.images import encode_images
from places import Place

NUM_RECORDS = 40
WRITABLE = [fmt for fmt in FORMATS if fmt.info.can_write]
per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)


def columns(seed: int) -> dict[str, pa.Array]:
    """Random values of many types, many of them at the limits of their types."""
    rng = np.random.default_rng(seed)
    n = NUM_RECORDS
    whole = rng.integers(-(1 << 62), 1 << 62, n)
    floats = rng.standard_normal(n)
    words = [rng.choice(["", "a\0", "é", "b " * 9]) for _ in range(n)]
    lengths = rng.integers(0, 4, n)

    def some(values: Any, type_: Any = None) -> pa.Array:
        mask = rng.random(n) < (0.2 if rng.random() < 0.5 else 0)
        return pa.array([None if m else v for m, v in zip(mask, values, strict=True)], type_)

    found: dict[str, pa.Array] = {
        "float64": some(floats.tolist(), pa.float64()),
        "exact64": pa.array(np.round(floats * 4) / 4),
        "nan": pa.array(np.where(floats > 0, np.nan, 0.25)),
        "float32": some(floats.astype(np.float32).tolist(), pa.float32()),
        "float16": pa.array(floats.astype(np.float16)),
        "uint64": pa.array(rng.integers(0, 1 << 64, n, np.uint64)),
        "bool": some((floats > 0).tolist()),
        "date": pa.array(rng.integers(0, 9999, n).astype(np.int32)).cast(pa.date32()),
        "decimal": pa.array([Decimal(int(w)) / 100 for w in whole % 999], pa.decimal128(12, 2)),
        "text": some(words),
        "bytes": some([w.encode() for w in words]),
        "classes": pa.array(rng.choice(["x", "y", "z"], n)).dictionary_encode(),
        "missing classes": some(rng.choice(["x", "y"], n).tolist()).dictionary_encode(),
        "lists": some([rng.standard_normal(k).tolist() for k in lengths], pa.list_(pa.float64())),
        "holes": pa.array([[1, None][: k % 3] for k in lengths], pa.list_(pa.int64())),
        "nested": pa.array(
            [[[1] * k, []][: k % 3] for k in lengths], pa.list_(pa.list_(pa.int64()))
        ),
        "texts": pa.array([words[:k] for k in lengths], pa.list_(pa.string())),
        "vectors": pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(2 * n)), 2),
        "tensor": fixed_tensors(rng.standard_normal((n, 2, 2))),
        "json": pa.array([f'{{"k": {w}}}' for w in whole], pa.json_()),
    }
    for bits in (8, 16, 32, 64):
        found[f"int{bits}"] = some((whole >> (64 - bits)).tolist(), getattr(pa, f"int{bits}")())
    # In nanoseconds these fit int64. penstock reads other timestamps of MessagePack as extensions.
    for unit, shift in (("s", 33), ("ms", 23), ("us", 13), ("ns", 3)):
        found[f"time {unit}"] = pa.array(whole >> shift).cast(pa.timestamp(unit))
        found[f"duration {unit}"] = pa.array(whole).cast(pa.duration(unit))
    pictures = rng.integers(0, 256, (n, 4, 4, 3), np.uint8)
    jpegs = encode_images(pictures, "jpeg")
    found["jpeg"] = pa.ExtensionArray.from_storage(ImageType(), _stored(jpegs))
    found["png"] = pa.ExtensionArray.from_storage(
        ImageType(), _stored(encode_images(pictures, "png"))
    )
    return found


def _stored(images: Any) -> pa.Array:
    stored = images.storage if isinstance(images, pa.ExtensionArray) else images
    return stored.cast(ImageType().storage_type)


def values(column: Any) -> list[Any]:
    """The values of a column without what only its type expresses: text as its bytes, a time as its count."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.int64())
    return [_plain(value) for value in column.to_pylist()]


PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def instants(column: Any) -> list[int | None]:
    """Nanoseconds, whatever the stored unit is: MessagePack has only one unit."""
    per_unit = 86400 * 10**9
    if not pa.types.is_date32(column.type):
        per_unit = 10**9 // PER_SECOND[column.type.unit]
    return [None if count is None else count * per_unit for count in values(column)]


def is_same(found: Any, given: Any) -> bool:
    """Whether values are equal, whatever their types are."""
    if found is None:
        return not any(one is not None for one in values(given))
    is_time = [
        pa.types.is_timestamp(one.type) or pa.types.is_date32(one.type) for one in (found, given)
    ]
    if all(is_time):
        return instants(found) == instants(given)
    return flat(values(found)) == flat(values(given))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value.ravel().tolist()]
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value != value:
        return "nan"
    assert not isinstance(value, dt.datetime)
    return value


def flat(found: list[Any]) -> list[Any]:
    """Flattened values: tensors and lists of numbers may read back in either shape."""
    return [
        np.ravel(one).tolist() if isinstance(one, list) and _is_even(one) else one for one in found
    ]


def _is_even(value: list[Any]) -> bool:
    return (
        bool(value)
        and all(isinstance(one, list) for one in value)
        and len(set(map(len, value))) == 1
    )


def table_of(fmt: Format, name: str, column: pa.Array) -> tuple[pa.Table, str] | None:
    """The column in a table that the format may be able to hold, and the column's name in it."""
    images = pa.ExtensionArray.from_storage(
        ImageType(), _stored(encode_images(np.zeros((len(column), 2, 2, 3), np.uint8), "jpeg"))
    )
    kind = fmt.info.name
    if kind == "npy":
        return pa.table({"data": column}), "data"
    if kind == "recordio":
        if name in ("jpeg", "png"):
            return pa.table({"label": range(len(column)), "image": column}), "image"
        return pa.table({"label": column, "image": images}), "label"
    if kind == "imagefolder":
        if name in ("jpeg", "png"):
            return pa.table({"image": column}), "image"
        return pa.table({"image": images, "c": column}), "c"
    return pa.table({"c": column, "id": range(len(column))}), "c"


def read_back(path: str, fmt: Format, key: str) -> Any:
    found: Any = pa.table(ps.open(path, index="never", format=fmt.info.name))
    return found.column(key) if key in found.column_names else None


@per_format
@pytest.mark.parametrize("seed", range(3))
def test_what_reads_back_differently_is_noted_or_refused(
    fmt: Format, place: Place, seed: int
) -> None:
    held = 0
    for number, (name, column) in enumerate(columns(seed).items()):
        made = table_of(fmt, name, column)
        assert made is not None
        table, key = made
        path = str(place / f"{number}") + fmt.info.extensions[0]
        how: dict[str, Any] = {"format": fmt.info.name, "index": False}
        if fmt.info.name == "beton" and seed == 1:
            how["image_mode"] = "raw"
        try:
            summary = ps.write(table, path, **how)
        except ps.SchemaError:
            with pytest.raises(ps.SchemaError):
                ps.write(table, path, exact=True, **how)
            continue
        held += 1
        found = read_back(path, fmt, key)
        same = is_same(found, column)
        if name in ("jpeg", "png") and not same and not summary.notes:
            pixels = [ps.decode_images(values(one)) for one in (found, column)]
            same = bool(np.array_equal(*pixels))
        about = [note for note in summary.notes if repr(key) in note]
        assert same or about, (name, column.type, found, column)
        if about:
            with pytest.raises(ps.SchemaError) as caught:
                ps.write(table, path, exact=True, overwrite=True, **how)
            assert caught.value.field == key
        else:
            again = ps.write(table, path, exact=True, overwrite=True, **how)
            assert again.notes == ()
    assert held


@pytest.mark.parametrize("way", ["write", "convert", "append", "add_fields"])
def test_every_verb_that_rounds_says_so(tmp_path: Path, way: str) -> None:
    data = pa.table({"share": [0.5, 0.1]})
    ps.write(pa.table({"share": pa.array([0.5], pa.float32())}), tmp_path / "a.tfrecord")
    ps.write(data, tmp_path / "a.parquet")
    calls: dict[str, Any] = {
        "write": lambda **how: ps.write(data, tmp_path / "b.tfrecord", **how),
        "convert": lambda **how: ps.convert(tmp_path / "a.parquet", tmp_path / "c.tfrecord", **how),
        "append": lambda **how: ps.append(data, tmp_path / "a.tfrecord", **how),
        "add_fields": lambda: ps.add_fields(
            tmp_path / "a.tfrecord", {"more": [0.1]}, into=tmp_path / "d.tfrecord"
        ),
    }
    if way != "add_fields":
        with pytest.raises(ps.SchemaError, match=r"round|0\.1") as caught:
            calls[way](exact=True)
        assert (caught.value.field, caught.value.record) == ("share", 1)
    (note,) = calls[way]().notes
    assert "float64 is rounded to float32" in note
    assert ps.write({"share": [0.5]}, tmp_path / "e.tfrecord").notes == ()


def test_notes_of_a_conversion_that_was_killed_are_kept(tmp_path: Path) -> None:
    ps.write({"share": [0.1, 0.5, 0.5, 0.5]}, tmp_path / "a.parquet")
    target = tmp_path / "b.tfrecord"

    def stop(records: int, done: int, total: int) -> None:
        del done, total
        if records > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.convert(tmp_path / "a.parquet", target, num_shards=2, progress=stop)
    assert len(ps.convert(tmp_path / "a.parquet", target, num_shards=2).notes) == 1


def test_exact_changes_no_picture(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    ps.write({"image": encode_images(pixels, "png"), "label": [0, 1]}, tmp_path / "a.tar")
    for how in ({"image_mode": "jpg"}, {"max_side": 2}):
        with pytest.raises(ValueError, match="exact=True"):
            ps.convert(tmp_path / "a.tar", tmp_path / "b.tar", exact=True, **how)
