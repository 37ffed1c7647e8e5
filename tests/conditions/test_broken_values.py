"""Conditions on JSON and pictures of which some are broken, or on values of several kinds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

BROKEN = {5: '{"cls": broken', 70: "no"}
MIXED = {3: '{"cls": "13"}', 6: '{"cls": 2.5}', 7: '{"cls": null}', 8: '{"cls": true}'}
ODD = {
    9: '{"cls": "cat"}',
    10: '{"cls": [1]}',
    11: '{"cls": {"a": 1}}',
    12: '{"cls": 1' + "0" * 400 + "}",
}


def written(folder: Path, format: str, *changes: dict[int, str]) -> Path:
    texts = [json.dumps({"cls": n % 4}) for n in range(100)]
    for number, text in {k: v for change in changes for k, v in change.items()}.items():
        texts[number] = text
    path = folder / f"a.{format}"
    ps.write({"json": pa.array(texts, pa.json_()), "id": range(100)}, path)
    return path


@pytest.mark.parametrize("format", ["parquet", "tar"])
def test_a_record_with_broken_json_is_damaged(tmp_path: Path, format: str) -> None:
    path = written(tmp_path, format, BROKEN)
    with pytest.raises(ps.FormatError, match=r"record 5, field 'json.cls': a text is not JSON"):
        ps.open(path).count("json.cls >= 0")
    for where in ("json.cls >= 0", 'cast(json.cls, "int64") >= 0'):
        ds = ps.open(path, damage="skip")
        assert ds.count(where) == 98
        assert [region.num_records for region in ds.damage] == [1, 1]
        assert len(ds.filter(where)) == 98
        assert len(ds.damage) == 2, "the same records"
        by_number = ps.open(path, damage="skip").filter(where)
        assert len(by_number) == 98
        assert [region.num_records for region in by_number.damage] == [1, 1]
        assert by_number.take([5, 69, 97]).column("id").to_pylist() == [6, 71, 99]


def test_other_errors_are_not_damage(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet", BROKEN, ODD)
    with pytest.raises(ps.SchemaError, match=r"record 9, field 'json.cls'"):
        ps.open(path, damage="skip").count('cast(json.cls, "int64") >= 0')


def test_values_of_several_kinds_are_cast(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet", MIXED)
    with pytest.raises(ps.SchemaError, match=r'no common type.*\n.*cast\(json.cls, "float64"\)'):
        ps.open(path).count("json.cls >= 0")
    ds = ps.open(path).with_columns({"x": 'cast(json.cls, "float64")'})
    assert ds.to_table(["x"])["x"].to_pylist()[:9] == [0, 1, 2, 13, 0, 1, 2.5, None, 1]
    assert ds.count('cast(json.cls, "string") == "13"') == 1


def test_try_cast_reads_each_value_alone(tmp_path: Path) -> None:
    path = written(tmp_path, "parquet", MIXED, ODD, BROKEN)
    ds = ps.open(path).with_columns({"x": 'try_cast(json.cls, "float64")'})
    found = ds.to_table(["x"])["x"].to_pylist()
    assert found[:13] == [0, 1, 2, 13, 0, None, 2.5, None, 1, None, None, None, None]
    assert (found[70], len(found) - found.count(None)) == (None, 100 - 7)
    assert ps.open(path).count('try_cast(json.cls, "float64") is null') == 7


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """200 pictures, two of which are none."""
    texts = ps.encode_images(np.zeros((200, 8, 8, 3), np.uint8), "png").storage.to_pylist()
    texts[5] = texts[7] = b"junk"
    ps.write({"id": range(200), "image": pa.array(texts, pa.binary())}, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_a_record_with_a_broken_picture_is_damaged(pictures: Path) -> None:
    with pytest.raises(ps.FormatError, match="record 5, field 'image': width takes images"):
        ps.open(pictures).count("width(image) == 8")
    ds = ps.open(pictures, damage="skip")
    assert ds.count("width(image) == 8") == 198
    assert [region.num_records for region in ds.damage] == [1, 1]


def test_an_error_of_a_function_is_not_damage(pictures: Path) -> None:
    def is_wide(batch: pa.RecordBatch) -> np.ndarray:
        return np.asarray(ps.images.image_sizes(batch["image"]).field("width")) == 8

    ds = ps.open(pictures, damage="skip")
    for asked in (
        ds.count,
        lambda where: len(ds.filter(where)),
        lambda where: ds.to_table(where=where),
    ):
        with pytest.raises(ps.SchemaError, match="the function in where= raised an error"):
            asked(is_wide)
    assert not ds.damage
