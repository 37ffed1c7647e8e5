"""Hugging Face's images: records that have only a path of a picture are faults of these records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

ONLY_PATH, CUT, NULL = 2, 4, 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pictures = ps.encode_images([np.full((8, 8, 3), n, np.uint8) for n in range(6)], "jpeg")
    files = [bytes(data) for data in pictures.to_pylist()]
    images: list[dict[str, object] | None] = [
        {"bytes": data, "path": f"{n}.jpg"} for n, data in enumerate(files)
    ]
    images[ONLY_PATH] = {"bytes": None, "path": "only.jpg"}
    images[CUT] = {"bytes": files[CUT][:100], "path": "cut.jpg"}
    images.append(None)
    pq.write_table(pa.table({"image": images, "id": range(7)}), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def ids(ds: ps.Dataset, **image: Any) -> list[int]:
    loader = ps.Loader(ds, 3, decode={"image": ps.Image(size=8, **image)})
    return [int(value) for batch in loader for value in batch["id"]]


def test_skipping_leaves_out_the_record_with_only_a_path(path: Path) -> None:
    ds = ps.open(path, damage="skip")
    assert ids(ds) == [0, 1, 3, 5]
    reasons = [region.reason for region in ds.damage]
    assert len(reasons) == 3
    assert "record 2, field image: the record has only the path" in reasons[0]


def test_columns_that_move_with_it_leave_it_out_too(tmp_path: Path, path: Path) -> None:
    table = pq.read_table(path)
    boxes = pa.array([[[0, 0, 4, 4]]] * len(table), pa.list_(pa.list_(pa.float32(), 4)))
    pq.write_table(table.append_column("boxes", boxes), tmp_path / "boxes.parquet")
    ds = ps.open(tmp_path / "boxes.parquet", damage="skip")
    assert ids(ds, same={"boxes": "xyxy"}) == [0, 1, 3, 5]


def test_without_skipping_it_is_an_error_that_names_the_record(path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="only the path of this image") as caught:
        ids(ps.open(path))
    assert caught.value.record == ONLY_PATH
    assert caught.value.hint == 'open(..., damage="skip"), to skip damaged records'


def test_verify_reports_each_record(path: Path) -> None:
    report = ps.verify(path, decode=True)
    assert [finding.record for finding in report.findings] == [ONLY_PATH, CUT]
    assert report.num_records == 5


def test_a_null_picture_says_how_to_leave_it_out(path: Path) -> None:
    with pytest.raises(ps.FormatError, match="a null where an image is wanted") as caught:
        ids(ps.open(path).filter("id > 4"))
    assert caught.value.record == NULL
    assert caught.value.hint == (
        'ds.filter("`image` is not null"), to leave out records without an image'
    )
    assert ids(ps.open(path).filter("id > 4").filter("`image` is not null")) == [5]
