"""Hugging Face's images, structs of `bytes` and `path`, in conversions to each format and in conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import formats
from penstock.columns.types import is_image
from penstock.payloads.images import image_sizes

COUNT = 20
SIZES = [(20 + n, 50 - n) for n in range(COUNT)]
PIXELS = [np.random.default_rng(n).integers(0, 256, (*SIZES[n], 3), np.uint8) for n in range(COUNT)]
JPEGS: list[bytes] = ps.encode_images(PIXELS, "jpeg").to_pylist()
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
HOLD_BYTES = [
    fmt.info.name for fmt in formats.FORMATS if fmt.info.can_write and fmt.info.name != "npy"
]
KEEP_STRUCTS = {"parquet", "arrow", "msgpack"}


def structs(count: int = COUNT) -> list[dict[str, Any] | None]:
    return [{"bytes": JPEGS[n], "path": f"{n}.jpg"} for n in range(count)]


def stored(folder: Path, images: list[Any], name: str = "hf.parquet") -> Path:
    table = pa.table({"image": pa.array(images, STRUCT), "label": np.arange(len(images))})
    pq.write_table(table, folder / name, row_group_size=7)
    return folder / name


def converted(source: Any, folder: Path, name: str, **how: Any) -> tuple[ps.Dataset, Any]:
    info = formats.by_name(name).info
    path = folder / f"out{info.extensions[0].rstrip('/')}"
    made = ps.convert(source, path, format=name, **how)
    return ps.open(path, format=name), made


@pytest.mark.parametrize("name", HOLD_BYTES)
def test_the_images_arrive_in_each_format(tmp_path: Path, name: str) -> None:
    found, made = converted(stored(tmp_path, structs()), tmp_path, name, prove=True)
    table = found.take(range(COUNT))
    if name in KEEP_STRUCTS:
        assert table.column("image").to_pylist() == structs()
        assert not made.notes
        return
    assert is_image(table.schema.field("image").type)
    assert table.column("image").to_pylist() == JPEGS
    assert any("the paths in them were left out" in note for note in made.notes)


@pytest.mark.parametrize("name", [name for name in HOLD_BYTES if name != "beton"])
def test_they_are_encoded_again(tmp_path: Path, name: str) -> None:
    how = {"image_mode": "webp", "max_side": 16}
    found, _ = converted(stored(tmp_path, structs()), tmp_path, name, **how)
    sizes = image_sizes(found.take(range(COUNT)).column("image")).to_pylist()
    assert {size["codec"] for size in sizes} == {"webp"}
    assert {max(size["width"], size["height"]) for size in sizes} == {16}


@pytest.mark.parametrize("name", HOLD_BYTES)
def test_they_can_be_named(tmp_path: Path, name: str) -> None:
    how = {"images": "image", "where": "width(image) < 45 and height(image) >= 28"}
    found, _ = converted(stored(tmp_path, structs()), tmp_path, name, **how)
    right = [JPEGS[n] for n in range(COUNT) if SIZES[n][1] < 45 and SIZES[n][0] >= 28]
    assert found.take(range(len(found))).column("image").to_pylist() == right
    assert 0 < len(right) < COUNT


def test_a_member_of_a_tar_gets_the_name_of_the_column(tmp_path: Path) -> None:
    ps.convert(stored(tmp_path, structs(2)), tmp_path / "x.tar", rename={"image": "jpg"})
    found = ps.open(tmp_path / "x.tar", decode=False, overlays=False)
    assert [record["jpg"] for record in found] == JPEGS[:2]


def test_other_structs_of_bytes_and_a_path_stay_as_they_are(tmp_path: Path) -> None:
    """Hugging Face stores audio in the same way."""
    sounds = [{"bytes": b"RIFF" + bytes([n]), "path": f"{n}.wav"} for n in range(5)]
    for name in ("tfrecord", "arrow"):
        found, _ = converted(stored(tmp_path, sounds), tmp_path, name)
        assert found.take(range(5)).column("image").to_pylist() == sounds
    with pytest.raises(ValueError, match="no column holds images"):
        ps.convert(stored(tmp_path, sounds), tmp_path / "y.tar", max_side=3)


@pytest.mark.parametrize("how", [{}, {"image_mode": "png"}, {"shuffle": 3}])
def test_an_image_without_bytes(tmp_path: Path, how: dict[str, Any]) -> None:
    images = structs()
    images[11] = {"bytes": None, "path": "elsewhere.jpg"}
    images[13] = None
    source = stored(tmp_path, images)
    with pytest.raises(ps.SchemaError, match="only the path of this image") as caught:
        ps.convert(source, tmp_path / "a.tfrecord", **how)
    assert (caught.value.record, caught.value.field) == (11, "image")
    assert caught.value.file == str(source)
    skipping = ps.open(source, damage="skip")
    ps.convert(skipping, tmp_path / "b.tfrecord", **how)
    left = [n for n in range(COUNT) if n != 11]
    batch = ps.open(tmp_path / "b.tfrecord").take(range(len(left)))
    assert sorted(batch.column("label").to_pylist()) == left
    null = batch.column("label").to_pylist().index(13)
    assert not batch.column("image")[null].as_py()
    (region,) = skipping.damage
    assert "record 11" in region.reason
    assert "only the path of this image" in region.reason


def test_sizes_in_conditions(tmp_path: Path) -> None:
    images = [*structs(6), None, {"bytes": None, "path": "x.jpg"}]
    dataset = ps.open(stored(tmp_path, images))
    for text, right in (
        ("width(image) > 47", [0, 1, 2]),
        ("height(image) == 24", [4]),
        ("width(image) is null", [6, 7]),
    ):
        assert [record["label"] for record in dataset.filter(text)] == right
    wide = dataset.with_columns({"wide": "width(image)"}).take([3, 6]).column("wide")
    assert wide.to_pylist() == [47, None]
