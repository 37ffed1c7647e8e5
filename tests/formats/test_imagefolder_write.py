"""Folders of images: writing them, and what others read of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from test_imagefolder import CLASSES, FLAT, jpeg, laid

import penstock as ps
from penstock.columns.types import ImageType


def some(labels: list[Any], **more: Any) -> pa.Table:
    images = pa.ExtensionArray.from_storage(
        ImageType(), pa.array([jpeg(n) for n in range(len(labels))])
    )
    return pa.table({"image": images, "label": pa.array(labels).dictionary_encode(), **more})


def tree(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_records_in_the_order_of_classes_need_no_table(tmp_path: Path) -> None:
    made = ps.write(some(["a", "a", "b"]), f"{tmp_path}/out/")
    assert made.paths == (f"{tmp_path}/out",)
    assert tree(tmp_path / "out") == ["a/00000000.jpg", "a/00000001.jpg", "b/00000002.jpg"]
    assert ps.open(tmp_path / "out")[2]["label"] == "b"


def test_other_orders_and_columns_come_back_by_a_table(tmp_path: Path) -> None:
    table = some(["b", "a", "b"], box=[[1.5, 2], [3], []])
    ps.write(table, tmp_path / "out", format="imagefolder")
    assert tree(tmp_path / "out")[-1] == "metadata.parquet"
    assert pa.table(ps.open(tmp_path / "out")).to_pylist() == table.to_pylist()
    ps.write(table.drop_columns("box"), tmp_path / "two", format="imagefolder")
    assert [one["label"] for one in ps.open(tmp_path / "two")] == ["b", "a", "b"]
    for kind in ("csv", "jsonl"):
        plain = some(["b", "a"], n=[1, 2])
        ps.write(plain, tmp_path / kind, format="imagefolder", table=kind)
        assert f"metadata.{kind}" in tree(tmp_path / kind)
        assert pa.table(ps.open(tmp_path / kind)).to_pylist() == plain.to_pylist()
    with pytest.raises(ps.SchemaError, match="csv table"):
        ps.write(table, tmp_path / "no", format="imagefolder", table="csv")
    assert not (tmp_path / "no").exists()


def test_names_are_taken_from_the_column(tmp_path: Path) -> None:
    flat = laid(tmp_path / "flat", FLAT)
    ps.write(ps.open(flat), tmp_path / "again", format="imagefolder")
    assert tree(tmp_path / "again") == tree(flat)
    pets = laid(tmp_path / "pets", CLASSES)
    ps.write(ps.open(pets, file_names=True), tmp_path / "pets again", format="imagefolder")
    assert tree(tmp_path / "pets again") == tree(pets)


@pytest.mark.parametrize(
    "name",
    ["../a.jpg", "/a.jpg", "a/../b.jpg", ".a.jpg", "", "a", "a.txt", "x\\y.jpg", "a\0.jpg",
     "metadata.csv", "b" * 300 + ".jpg", "a.tmp/b.jpg", "a//b.jpg", None],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str | None) -> None:
    table = some(["a"]).select(["image"]).append_column("file_name", pa.array([name], pa.string()))
    with pytest.raises(ps.SchemaError, match="cannot be the name of an image") as caught:
        ps.write(table, tmp_path / "out", format="imagefolder")
    assert caught.value.record == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["../a", "..", ".", "", "a/b", "x.part", "SUCCESS", ".git", "a\nb"]
)
def test_classes_that_cannot_be_folder_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ps.SchemaError, match="cannot be the name"):
        ps.write(some([name]), tmp_path / "out", format="imagefolder")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"a": [1]}), "needs a column 'image'"),
        (pa.table({"image": ["text"]}), "images must be the bytes"),
        (pa.table({"image": [b"text"]}), "not a JPEG"),
        (pa.table({"image": pa.array([jpeg(), None])}), "has no image"),
        (some(["a", None]), "has no class"),
        (
            pa.table({"image": [jpeg()] * 2, "file_name": ["a.jpg", "a.jpg"]}),
            "already has the name",
        ),
        (
            pa.table({"image": [jpeg()] * 2, "file_name": ["a.jpg", "a.jpg/b.jpg"]}),
            "already has the name",
        ),
    ],
)
def test_what_a_folder_cannot_hold_is_refused_and_leaves_nothing(
    tmp_path: Path, table: pa.Table, reason: str
) -> None:
    with pytest.raises(ps.SchemaError, match=reason):
        ps.write(table, tmp_path / "out", format="imagefolder")
    assert os.listdir(tmp_path) == []


def test_folder_is_replaced_only_by_what_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ps.write(some(["a", "b"]), out, format="imagefolder")
    with pytest.raises(FileExistsError, match="overwrite"):
        ps.write(some(["c"]), out, format="imagefolder")
    ps.write(some(["c"]), out, format="imagefolder", overwrite=True)
    assert tree(out) == ["c/00000000.jpg"]
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="thesis"):
        ps.write(some(["d"]), out, format="imagefolder", overwrite=True)
    assert tree(out) == ["c/00000000.jpg", "thesis.tex"]
    assert os.listdir(tmp_path) == ["out"]


def test_error_while_writing_leaves_the_old_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ps.write(some(["a"]), out, format="imagefolder")

    def records() -> Any:
        yield from some(["b"]).to_batches()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        ps.write(records(), out, format="imagefolder", overwrite=True)
    assert tree(out) == ["a/00000000.jpg"]
    assert os.listdir(tmp_path) == ["out"]


def test_conversions_to_folders_and_back_keep_the_records(tmp_path: Path) -> None:
    table = some(["b", "a", "b"], n=[1, 2, 3])
    first = tmp_path / "a.arrow"
    ps.write(table, first)
    for _ in range(2):
        ps.convert(first, tmp_path / "folder", format="imagefolder", overwrite=True, prove=True)
    ps.convert(tmp_path / "folder", tmp_path / "b.arrow")
    assert pa.table(ps.open(tmp_path / "b.arrow")).to_pylist() == table.to_pylist()
    assert sorted(os.listdir(tmp_path)) == ["a.arrow", "b.arrow", "folder"]
    assert ps.diff(first, tmp_path / "folder").equal


def test_verbs_that_change_files_leave_folders_alone(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", CLASSES)
    before = tree(folder)
    for change in (
        lambda: ps.append(some(["a"]), folder),
        lambda: ps.append(some(["a"]), folder, shard="last"),
        lambda: ps.open(folder, raw=True),
        lambda: ps.open(folder / "cat/0.jpg"),
        lambda: ps.open(folder / "cat/0.jpg", format="imagefolder"),
    ):
        with pytest.raises(ps.PenstockError):
            change()
    assert ps.repair(folder, in_place=True).ok
    assert tree(folder) == before
    (folder / "cat/0.jpg").write_bytes(b"no image")
    before = tree(folder)
    with pytest.raises(ps.UnsupportedError, match="cannot be repaired in place"):
        ps.repair(folder, in_place=True)
    assert tree(folder) == before
    assert ps.repair(folder, into=tmp_path / "b").num_lost == 1
    kept = tree(tmp_path / "b")
    assert kept == [name for name in before if name != "cat/0.jpg"]


def test_other_programs_read_what_is_written(tmp_path: Path) -> None:
    ps.write(some(["b", "a", "b"], n=[1, 2, 3]), tmp_path / "out", format="imagefolder")
    rows = pq.read_table(tmp_path / "out" / "metadata.parquet").to_pylist()
    assert [row["n"] for row in rows] == [1, 2, 3]
    for number, row in enumerate(rows):
        with Image.open(tmp_path / "out" / row["file_name"]) as image:
            expected = ps.decode_images([jpeg(number)])[0]
            np.testing.assert_array_equal(np.asarray(image), expected)
