"""Folders of images: their layouts, their tables, and files that must not lead out of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.columns.types import ImageType
from reading import SHARED

RNG = np.random.default_rng(8)


def jpeg(seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (1, 6, 8, 3), np.uint8)
    return ps.encode_images(pixels, "jpeg")[0].as_py()


def laid(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


CLASSES = {f"{c}/{n}.jpg": jpeg(n) for c in ("dog", "cat") for n in range(3)}
FLAT = {f"{n}.jpg": jpeg(n) for n in (2, 0, 1)}


def images_of(dataset: ps.Dataset) -> list[bytes]:
    return [one["image"] for one in dataset]


def test_folders_of_classes_give_labels_sorted_by_name(tmp_path: Path) -> None:
    ds = ps.open(laid(tmp_path / "pets", CLASSES))
    assert ds.shards[0].format == "imagefolder"
    assert ds.schema.names == ["image", "label"]
    assert isinstance(ds.schema.field("image").type, ImageType)
    table = pa.table(ds)
    assert table.column("label").to_pylist() == ["cat"] * 3 + ["dog"] * 3
    assert table.column("label").chunk(0).dictionary.to_pylist() == ["cat", "dog"]
    assert images_of(ds) == [CLASSES[f"{c}/{n}.jpg"] for c in ("cat", "dog") for n in range(3)]
    named = ps.open(tmp_path / "pets", file_names=True)
    assert named[4] == {"image": jpeg(1), "label": "dog", "file_name": "dog/1.jpg"}
    assert ps.info(tmp_path / "pets").shards[0].format == "imagefolder"
    assert ps.verify(tmp_path / "pets").ok


def test_flat_folder_gives_names(tmp_path: Path) -> None:
    ds = ps.open(laid(tmp_path / "flat", FLAT))
    assert [one["file_name"] for one in ds] == ["0.jpg", "1.jpg", "2.jpg"]
    assert images_of(ds) == [jpeg(n) for n in range(3)]


ROWS = [{"file_name": f"{n}.jpg", "score": n / 2, "text": f"t{n}"} for n in (1, 2, 0)]


def tables() -> dict[str, bytes]:
    table = pa.Table.from_pylist(ROWS)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    csv = "file_name,score,text\n" + "".join(
        f"{r['file_name']},{r['score']},{r['text']}\n" for r in ROWS
    )
    return {
        "metadata.csv": csv.encode(),
        "labels.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
        "metadata.parquet": sink.getvalue().to_pybytes(),
    }


@pytest.mark.parametrize("name", list(tables()))
def test_a_table_next_to_images_gives_columns_and_order(tmp_path: Path, name: str) -> None:
    ds = ps.open(laid(tmp_path / "a", {**FLAT, name: tables()[name]}))
    assert ds.schema.names == ["image", "score", "text"]
    assert images_of(ds) == [jpeg(1), jpeg(2), jpeg(0)]
    assert ds.take([2, 0]).column("text").to_pylist() == ["t0", "t1"]
    other = laid(tmp_path / "b", {**FLAT, "train.csv": tables()["metadata.csv"]})
    assert images_of(ps.open(other, format="imagefolder", table="train.csv")) == images_of(ds)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("name", ["file_name", "filename", "file", "path", "image"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_every_other_column_of_a_table_is_kept(
    tmp_path: Path, name: str, place: int, kind: str
) -> None:
    columns = {"label": ["x", "y"], "score": [1, 2]}
    items = list(columns.items())
    table = pa.table(dict([*items[:place], (name, ["0.jpg", "1.jpg"]), *items[place:]]))
    if kind == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        data = sink.getvalue().to_pybytes()
    elif kind == "csv":
        rows = [table.column_names, *([str(v) for v in row.values()] for row in table.to_pylist())]
        data = "".join(",".join(row) + "\n" for row in rows).encode()
    elif kind == "json":
        data = json.dumps(table.to_pylist()).encode()
    else:
        data = "".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()
    images = {"0.jpg": jpeg(0), "1.jpg": jpeg(1)}
    found: Any = pa.table(ps.open(laid(tmp_path / "a", {**images, f"metadata.{kind}": data})))
    assert found.column_names == ["image", "label", "score"]
    assert found.drop_columns("image").to_pydict() == columns


def test_a_column_that_would_take_the_name_of_the_images_is_an_error(tmp_path: Path) -> None:
    table = b"file_name,image,label\n0.jpg,7,x\n1.jpg,8,y\n2.jpg,9,z\n"
    folder = laid(tmp_path / "a", {**FLAT, "metadata.csv": table})
    with pytest.raises(ps.FormatError, match="another column 'image'") as caught:
        ps.open(folder)
    assert caught.value.field == "image"
    named = ps.open(folder, table="", other_files="ignore")
    assert named.schema.names == ["image", "file_name"]


def test_a_table_may_be_next_to_class_folders(tmp_path: Path) -> None:
    rows = "path,weight\ndog/0.jpg,1\n./cat/2.jpg,2\n"
    files = {"dog/0.jpg": jpeg(0), "cat/2.jpg": jpeg(2), "metadata.csv": rows.encode()}
    ds = ps.open(laid(tmp_path / "a", files))
    assert list(ds) == [
        {"image": jpeg(0), "label": "dog", "weight": 1},
        {"image": jpeg(2), "label": "cat", "weight": 2},
    ]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("file_name\n../secret.jpg\n", "not in the folder"),
        ("file_name\n/etc/passwd\n", "not in the folder"),
        ("file_name\n3.jpg\n", "not in the folder"),
        ("file_name\n0.jpg\n", "not named by the table"),
        ("other\n0.jpg\n", "no text column"),
        ("file_name,a,a\n0.jpg,1,2\n", "two columns"),
        ("", "cannot be read"),
        ("file_name\n1,2,3\n0.jpg\n", "cannot be read"),
    ],
)
def test_tables_that_say_something_else_are_errors(tmp_path: Path, table: str, reason: str) -> None:
    laid(tmp_path, {"secret.jpg": jpeg()})
    folder = laid(tmp_path / "a", {**FLAT, "metadata.csv": table.encode()})
    with pytest.raises(ps.FormatError, match=reason) as caught:
        ps.open(folder)
    assert str(folder) in str(caught.value)


def test_damaged_tables_are_errors_or_tables(tmp_path: Path) -> None:
    whole = tables()["metadata.parquet"]
    folder = laid(tmp_path / "a", FLAT)
    for cut in range(0, len(whole), 7):
        (folder / "metadata.parquet").write_bytes(whole[:cut])
        with pytest.raises(ps.PenstockError):
            ps.open(folder)
    rng = np.random.default_rng(3)
    for _ in range(300):
        broken = np.frombuffer(whole, np.uint8).copy()
        broken[rng.integers(0, len(broken), 2)] ^= rng.integers(1, 256, 2, np.uint8)
        (folder / "metadata.parquet").write_bytes(broken.tobytes())
        try:
            assert len(list(ps.open(folder))) == 3
        except ps.PenstockError:
            pass


def test_links_do_not_lead_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(jpeg(9))
    folder = laid(tmp_path / "a", FLAT)
    (folder / "9.jpg").symlink_to("0.jpg")
    assert images_of(ps.open(folder))[3] == jpeg(0), "a link inside is a file"
    for target in (secret, "/etc/passwd", tmp_path / "nothing", tmp_path / "a", tmp_path):
        (folder / "9.jpg").unlink()
        (folder / "9.jpg").symlink_to(target)
        with pytest.raises(ps.FormatError, match="outside the dataset"):
            ps.open(folder, format="imagefolder")


def test_a_class_that_is_a_link_is_reported_as_such(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", CLASSES)
    laid(tmp_path / "b", FLAT)
    (folder / "linked").symlink_to(tmp_path / "b")
    with pytest.raises(ps.FormatError, match="outside the dataset") as caught:
        ps.open(folder)
    assert caught.value.file == str(folder / "linked")


def test_links_are_followed_on_request(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", CLASSES)
    laid(tmp_path / "b", FLAT)
    (folder / "linked").symlink_to(tmp_path / "b")
    (folder / "cat" / "far.jpg").symlink_to(tmp_path / "b" / "0.jpg")
    ds = ps.open(folder, follow_links=True)
    assert len(ds) == 6 + 1 + 3
    labels = ds.to_table(["label"]).column("label").to_pylist()
    assert labels.count("linked") == 3
    assert images_of(ds)[labels.index("linked")] == jpeg(0)
    assert ds.take([9]).num_rows == 1
    assert ps.verify(folder, follow_links=True).num_records == 10
    made = ps.convert(ds, tmp_path / "c.tar")
    assert made.num_records == 10


def test_links_that_lead_in_a_circle_are_skipped_and_listed(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", CLASSES)
    other = laid(tmp_path / "b", FLAT)
    (folder / "cat" / "up").symlink_to("..")
    (folder / "cat" / "self").symlink_to(".")
    (folder / "far").symlink_to(other)
    (other / "back").symlink_to(folder)
    ds = ps.open(folder, follow_links=True)
    assert len(ds) == 6 + 3
    assert dict(ds.skipped_files) == {
        str(folder / name): "a link to a folder that it is in"
        for name in ("cat/up", "cat/self", "far/back")
    }


def test_splits_and_whole_folders_may_be_links(tmp_path: Path) -> None:
    laid(tmp_path / "data" / "one", CLASSES)
    laid(tmp_path / "data" / "two", CLASSES)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train").symlink_to(tmp_path / "data" / "one")
    (tmp_path / "set" / "val").symlink_to(tmp_path / "data" / "two")
    (tmp_path / "set" / "loop").symlink_to(tmp_path / "set")
    ds = ps.open(tmp_path / "set", follow_links=True)
    assert [path for path, _ in ds.skipped_files] == [str(tmp_path / "set" / "loop")]
    assert (len(ds), len(ds.shards)) == (12, 2)
    assert len(ps.open(tmp_path / "set", split="val", follow_links=True)) == 6
    with pytest.raises(FileNotFoundError, match="a link to a folder, which is not followed"):
        ps.open(tmp_path / "set")


def test_a_link_to_a_missing_file_is_an_error_even_then(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", FLAT)
    (folder / "9.jpg").symlink_to("nothing.jpg")
    with pytest.raises(ps.FormatError, match="a link to a missing file") as caught:
        ps.open(folder, follow_links=True)
    assert caught.value.file == str(folder / "9.jpg")


def test_a_hidden_link_is_left_out_as_any_hidden_file(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", FLAT)
    (folder / ".up").symlink_to("..")
    for follow in (False, True):
        assert len(ps.open(folder, follow_links=follow)) == 3


def test_other_files_are_errors_that_can_be_ignored(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", {**CLASSES, "cat/notes.doc": b"hello", "dog/.hidden": b""})
    with pytest.raises(ps.FormatError, match=r"notes\.doc: is not an image"):
        ps.open(folder)
    assert len(ps.open(folder, other_files="ignore")) == 6
    with pytest.raises(ValueError, match="other_files"):
        ps.open(folder, other_files="drop")


def test_text_next_to_images_is_skipped_and_listed(tmp_path: Path) -> None:
    texts = {"README.md": b"# Cats", "cat/A notes.txt": b"", "LICENSE": "Å".encode() * 5000}
    folder = laid(tmp_path / "a", {**CLASSES, **texts})
    ds = ps.open(folder)
    assert (len(ds), ds.shards[0].format) == (6, "imagefolder")
    assert {path for path, _ in ds.skipped_files} == {str(folder / name) for name in texts}
    assert ps.info(folder).skipped_files == ds.skipped_files
    assert ps.verify(folder).ok


@pytest.mark.parametrize("name", ["labels2.csv", "notes.jsonl", "x.parquet", "1.jpg.txt"])
def test_possible_data_next_to_images_is_not_skipped(tmp_path: Path, name: str) -> None:
    folder = laid(tmp_path / "a", {**CLASSES, f"cat/{name}": b"\0\1" * 50})
    with pytest.raises(ps.FormatError, match="is not an image"):
        ps.open(folder)


def test_file_that_only_calls_itself_an_image_is_named(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", {**FLAT, "1.jpg": b"#!/bin/sh"})
    ds = ps.open(folder)
    assert ds[0]["image"] == jpeg(0)
    for read in (lambda: ds[1], lambda: list(ds)):
        with pytest.raises(ps.FormatError, match="although its name ends like one") as caught:
            read()
        assert caught.value.record == 1
        assert caught.value.file == str(folder / "1.jpg")
    assert not ps.verify(folder).ok


def test_folders_of_other_files_are_read_as_before(tmp_path: Path) -> None:
    ps.write({"id": [1, 2]}, tmp_path / "a.tfrecord")
    assert ps.open(tmp_path).shards[0].format == "tfrecord"
    (tmp_path / "preview.jpg").write_bytes(jpeg())
    with pytest.warns(UserWarning, match=r"left out preview\.jpg"):
        ds = ps.open(tmp_path)
    assert [record["id"] for record in ds] == [1, 2]
    assert [path for path, _ in ds.skipped_files] == [str(tmp_path / "preview.jpg")]
    parquet = tmp_path / "p"
    parquet.mkdir()
    pq.write_table(pa.table({"id": [1]}), parquet / "metadata.parquet")
    assert ps.open(parquet).shards[0].format == "parquet"
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        ps.open(tmp_path / "empty")


def test_deep_folders_are_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "/".join("d" * 120)
    folder.mkdir(parents=True)
    with pytest.raises(ps.LimitError):
        ps.open(tmp_path / "a", format="imagefolder")


def test_take_reads_only_those_files(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", {f"{n:02}.jpg": jpeg(n) for n in range(30)})
    ds = ps.open(folder)
    for n in range(30):
        if n not in {3, 17}:
            (folder / f"{n:02}.jpg").unlink()
    found = ds.take([17, 3, 17]).column("image").to_pylist()
    assert found == [jpeg(17), jpeg(3), jpeg(17)]
    with pytest.raises(FileNotFoundError):
        ds[4]
    names = ps.open(folder, columns=["file_name"])
    (folder / "03.jpg").unlink()
    assert names.take([1, 0]).column("file_name").to_pylist() == ["17.jpg", "03.jpg"]


def test_files_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    folder = laid(tmp_path / "a", {**FLAT, "1.jpg": jpeg(1) + bytes(5000)})
    ds = ps.open(folder, limits={"record_bytes": 4000})
    assert ds[0]["image"] == jpeg(0)
    with pytest.raises(ps.LimitError, match="record_bytes") as caught:
        ds[1]
    assert caught.value.file == str(folder / "1.jpg")


def test_corpus_of_images_is_a_folder(tmp_path: Path) -> None:
    for kind in ("jpeg", "png", "webp"):
        for path in (SHARED / "corpus" / kind).rglob("*"):
            if path.suffix in {".jpg", ".png", ".webp"}:
                target = tmp_path / "all" / kind / path.name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    ds = ps.open(tmp_path / "all")
    assert len(ds) > 250
    found = 0
    for number in range(len(ds)):
        try:
            found += len(ds[number]["image"]) > 0
        except ps.FormatError as error:
            assert error.record == number
    assert found > 240


def test_a_table_nested_deeper_than_the_limit_is_refused(tmp_path: Path) -> None:
    deep = b'{"file_name": "0.jpg", "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
    laid(tmp_path, {"0.jpg": jpeg(), "metadata.jsonl": deep})
    with pytest.raises(ps.LimitError, match="nesting"):
        ps.open(tmp_path)
    brackets = json.dumps({"file_name": "0.jpg", "x": '["' * 200}).encode()
    laid(tmp_path, {"0.jpg": jpeg(), "metadata.jsonl": brackets})
    assert ps.open(tmp_path)[0]["x"] == '["' * 200


def test_a_small_table_of_very_many_rows_is_refused(tmp_path: Path) -> None:
    laid(tmp_path, {"0.jpg": jpeg()})
    names = pa.array(["0.jpg"]).take(pa.array(np.zeros(1 << 20, np.int64)))
    pq.write_table(pa.table({"file_name": names}), tmp_path / "metadata.parquet")
    assert (tmp_path / "metadata.parquet").stat().st_size < 1 << 14
    with pytest.raises(ps.LimitError, match="batch_bytes"):
        ps.open(tmp_path, limits={"batch_bytes": 1 << 20})


def test_files_of_operating_systems_are_no_data(tmp_path: Path) -> None:
    own = dict.fromkeys(("Thumbs.db", "cat/desktop.ini", "__MACOSX/cat/._a.jpg"), b"\xd0\xcf\x11")
    folder = laid(tmp_path / "photos", {"cat/a.jpg": jpeg(), "dog/b.jpg": jpeg(1), **own})
    dataset = ps.open(folder)
    assert len(dataset) == 2
    assert dataset[1]["label"] == "dog"
