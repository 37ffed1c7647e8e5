"""The programs of examples/ that write: with penstock.tf and with TensorFlow, they write the same records."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from programs import EXAMPLES, names, program

import penstock as ps
import penstock.tf as tf

COUNT = 100
LABELS = [i % 10 for i in range(COUNT)]


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    program("sample_images").main(str(folder), COUNT)
    return folder


@pytest.fixture
def folders(images: Path, tmp_path: Path) -> tuple[str, str]:
    """One folder for penstock and one for TensorFlow, with the same images."""
    made = []
    for name in ("ours", "theirs"):
        folder = tmp_path / name
        folder.mkdir()
        os.symlink(images / "images", folder / "images")
        made.append(str(folder))
    return made[0], made[1]


def in_tensorflow(name: str) -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    pytest.importorskip("tensorflow")
    return program(name, tensorflow=True)


def rows(path: str) -> list[dict[str, Any]]:
    return ps.open(path, index="never")[:].to_pylist()


def payloads(path: str) -> list[bytes]:
    return ps.open(path, raw=True, index="never")[:].column(0).to_pylist()


def same_examples(ours: str, theirs: str) -> None:
    a, b = payloads(ours), payloads(theirs)
    assert len(a) == len(b) > 0
    for one, other in zip(a, b, strict=True):
        assert tf.train.Example.FromString(one) == tf.train.Example.FromString(other)


def test_every_program_says_what_it_is_in_the_readme() -> None:
    text = (EXAMPLES / "README.md").read_text()
    assert [name for name in names() if f"`{name}.py`" not in text] == []


def test_a_thousand_images_are_written_with_their_labels(images: Path, tmp_path: Path) -> None:
    program("sample_images").main(str(tmp_path))
    program("write_images").main(str(tmp_path))
    dataset = ps.open(str(tmp_path / "data.tfrecord"), index="never")
    assert len(dataset) == 1000
    row = dataset[123]
    assert (row["label"], row["height"], row["width"]) == (3, 224, 224)
    assert row["image"] == (tmp_path / "images" / "123.jpg").read_bytes()


def test_images_are_written_as_in_tensorflow(folders: tuple[str, str]) -> None:
    ours, theirs = folders
    program("write_images").main(ours, LABELS)
    in_tensorflow("write_images").main(theirs, LABELS)
    same_examples(f"{ours}/data.tfrecord", f"{theirs}/data.tfrecord")


def test_compressed_records_are_written_as_in_tensorflow(folders: tuple[str, str]) -> None:
    ours, theirs = folders
    program("write_gzip").main(ours, LABELS)
    in_tensorflow("write_gzip").main(theirs, LABELS)
    same_examples(f"{ours}/data.tfrecord.gz", f"{theirs}/data.tfrecord.gz")
    with open(f"{ours}/data.tfrecord.gz", "rb") as file:
        assert file.read(2) == b"\x1f\x8b"


def test_rows_are_written_as_in_tensorflow(folders: tuple[str, str]) -> None:
    ours, theirs = folders
    program("write_rows").main(ours)
    in_tensorflow("write_rows").main(theirs)
    same_examples(f"{ours}/rows.tfrecord", f"{theirs}/rows.tfrecord")
    assert rows(f"{ours}/rows.tfrecord")[7] == {
        "byte_col": b"row 7",
        "float_col": 1.75,
        "int_col": 7,
    }


def test_missing_images_are_reported_and_skipped(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = folders
    files = ["0.jpg", "nowhere.jpg", "2.jpg"]
    program("write_image_folder").main(ours, files, [4, 5, 6])
    assert capsys.readouterr().out == f"Couldn't read file  {ours}/images/nowhere.jpg\n"
    assert [row["label"] for row in rows(f"{ours}/images.tfrecord")] == [4, 6]
    # In TensorFlow the program stops there; without the missing file, both write the same.
    there = in_tensorflow("write_image_folder")
    with pytest.raises(there.tf.errors.NotFoundError):
        there.main(theirs, files, [4, 5, 6])
    program("write_image_folder").main(ours, files[::2], [4, 6])
    there.main(theirs, files[::2], [4, 6])
    same_examples(f"{ours}/images.tfrecord", f"{theirs}/images.tfrecord")
