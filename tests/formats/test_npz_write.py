"""Writing npz: types that read back, plain archives, and names and types that are refused."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import ImageType, fixed_tensors


def rich_table() -> pa.Table:
    images = pa.ExtensionArray.from_storage(
        ImageType("jpeg"), pa.array([b"x", b"yz", b""], pa.binary())
    )
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int16()),
            "maybe": pa.array([1.5, None, 2.5]),
            "box": fixed_tensors(np.arange(12, dtype=np.float16).reshape(3, 2, 2)),
            "on": pa.array([True, None, False]),
            "name": pa.array(["é", None, ""]),
            "long": pa.array(["a", "b", "c"], pa.large_string()),
            "image": images,
            "tokens": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
            "words": pa.array([["a", "bé"], [], [None]], pa.list_(pa.string())),
            "deep": pa.array([[[1, 2], []], None, [[3]]], pa.list_(pa.list_(pa.int8()))),
            "label": pa.array(["cat", "dog", "cat"]).dictionary_encode(),
            "at": pa.array([1, None, 3], pa.timestamp("us")),
            "inner": pa.array(
                [{"a": 1, "b": True}] * 3, pa.struct([("a", pa.int8()), ("b", pa.bool_())])
            ),
        },
        metadata={"maker": "a test"},
    )


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_what_is_written_reads_back_with_its_types(compression: str | None, tmp_path: Path) -> None:
    wanted = rich_table()
    path = str(tmp_path / "w.npz")
    ps.write(wanted, path, compression=compression)
    dataset = ps.open(path, index="never")
    found = pa.Table.from_batches(list(dataset.scan()), dataset.schema)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert found.to_pylist() == wanted.to_pylist()
    numbers = [2, 0, 1, 1]
    assert dataset.take(numbers).to_pylist() == wanted.take(numbers).to_pylist()
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["id"].tolist() == [1, 2, 3]
        assert arrays["tokens#offsets"].tolist() == [0, 1, 1, 3]
        assert arrays["tokens#values"].tolist() == [1, 2, 3]
        assert all(arrays[name] is not None for name in arrays.files)
    assert zipfile.ZipFile(path).testzip() is None


def test_plain_columns_make_a_plain_archive(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    ps.write({"x": np.arange(5), "y": np.ones(5, np.float32)}, str(path))
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["x.npy", "y.npy"]
        assert archive.comment == b""
    data = path.read_bytes()
    for name in (b"x", b"y"):
        assert data.index(b"\x93NUMPY", data.index(name + b".npy")) % 64 == 0


def test_batches_with_other_dictionaries_share_their_names(tmp_path: Path) -> None:
    parts = [pa.array(names).dictionary_encode() for names in (["a", "b"], ["c", "a"], ["b", "c"])]
    ps.write(pa.table({"l": pa.chunked_array(parts)}), str(tmp_path / "w.npz"))
    found = pa.table(ps.open(str(tmp_path / "w.npz"), index="never"))
    assert found.column("l").to_pylist() == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("name", ["a#offsets", "x#utf8", "nul\0"])
def test_names_that_npz_keeps_are_refused_before_the_first_byte(name: str, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="rename"):
        ps.write({name: [1]}, str(tmp_path / "w.npz"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind", [pa.month_day_nano_interval(), pa.map_(pa.int8(), pa.int8()), pa.time32("s")]
)
def test_values_that_arrays_cannot_hold_are_refused_before_the_first_byte(
    kind: Any, tmp_path: Path
) -> None:
    with pytest.raises(ps.SchemaError, match="field 'x'"):
        ps.write(pa.table({"x": pa.array([], kind)}), str(tmp_path / "w.npz"))
    assert not list(tmp_path.iterdir())


def test_text_length_writes_numpys_text_type(tmp_path: Path) -> None:
    path = str(tmp_path / "w.npz")
    ps.write({"name": ["a", "bcd"]}, path, text_length=3)
    assert np.load(path)["name"].dtype == np.dtype("<U3")
    assert pa.table(ps.open(path)).to_pydict() == {"name": ["a", "bcd"]}


def test_no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    ps.write({"x": np.arange(100_000)}, str(tmp_path / "w.npz"))
    assert os.listdir(tmp_path / "spool") == []
