"""Writing HDF5: types that read back, what h5py reads, options, and what is refused."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hdf5_files import opened, table

import penstock as ps
from penstock.columns.types import DTYPE_KEY, ImageType, fixed_tensors


def rich_table() -> pa.Table:
    storage = pa.array([b"x", b"yz", b""], pa.binary())
    return pa.table(
        {
            "obs/box": fixed_tensors(np.arange(12, dtype=np.float16).reshape(3, 2, 2)),
            "id": pa.array([1, 2, 3], pa.int16()),
            "on": pa.array([True, False, True]),
            "name": pa.array(["é", "", "abc"]),
            "long": pa.array(["a", "b", "c"], pa.large_string()),
            "image": pa.ExtensionArray.from_storage(ImageType("jpeg"), storage),
            "tokens": pa.array([[1], [], [2, 3]], pa.list_(pa.int32())),
            "bytes": pa.array([[1], [], [2, 3]], pa.list_(pa.uint8())),
            "label": pa.array(["cat", "dog", "cat"]).dictionary_encode(),
            "at": pa.array([1, None, 3], pa.timestamp("us")),
            "day": pa.array([1, 2, 3], pa.date32()),
            "inner": pa.array(
                [{"a": 1, "b": True}] * 3, pa.struct([("a", pa.int8()), ("b", pa.bool_())])
            ),
            "digest": pa.array([b"ab", b"cd", b"\0\0"], pa.binary(2)),
        },
        metadata={"maker": "a test"},
    )


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_what_is_written_reads_back_with_its_types(compression: str | None, tmp_path: Path) -> None:
    wanted = rich_table()
    path = str(tmp_path / "w.h5")
    ps.write(wanted, path, compression=compression)
    found = table(path)
    assert found.schema.names == wanted.schema.names
    for name in wanted.schema.names:
        assert found.schema.field(name).type == wanted.schema.field(name).type, name
    assert found.schema.metadata == wanted.schema.metadata
    assert found.to_pylist() == wanted.to_pylist()
    assert opened(path).take([2, 0, 0]).to_pylist() == wanted.take([2, 0, 0]).to_pylist()


def test_h5py_reads_what_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "w.h5")
    ps.write(rich_table(), path, compression="gzip")
    with h5py.File(path) as file:
        assert file["obs/box"].shape == (3, 2, 2)
        assert file["obs/box"].dtype == np.float16
        assert file["obs/box"].maxshape == (None, 2, 2)
        assert (file["id"].compression, file["id"].shuffle) == ("gzip", True)
        assert file["name"].asstr()[...].tolist() == ["é", "", "abc"]
        assert file["image"][1].tobytes() == b"yz"
        assert file["tokens"][2].tolist() == [2, 3]
        assert h5py.check_enum_dtype(file["label"].dtype) == {"cat": 0, "dog": 1}
        assert file["on"][...].tolist() == [True, False, True]
        assert file.attrs["maker"] == "a test"
        file_times = file["at"][...]
        assert file_times.dtype == np.dtype("M8[us]")


def test_a_dataset_can_grow_by_h5py(tmp_path: Path) -> None:
    path = str(tmp_path / "w.h5")
    ps.write({"x": np.arange(5)}, path)
    with h5py.File(path, "a") as file:
        file["x"].resize(7, axis=0)
        file["x"][5:] = [5, 6]
    assert table(path).to_pydict() == {"x": list(range(7))}


def test_options_match_the_datasets(tmp_path: Path) -> None:
    path = str(tmp_path / "w.h5")
    ps.write(
        {"x": np.arange(5000)}, path, compression="gzip", level=9, shuffle=False, chunk_records=100
    )
    with h5py.File(path) as file:
        one = file["x"]
        assert (one.chunks, one.compression_opts, one.shuffle) == ((100,), 9, False)
    for wrong in ({"compression": "zip"}, {"level": 10}, {"chunk_records": 0}):
        with pytest.raises(ValueError, match=r"must be one of|0 to 9|at least 1"):
            ps.write({"x": [1]}, path, overwrite=True, **wrong)


def test_a_nul_in_text_names_its_record_and_leaves_nothing(tmp_path: Path) -> None:
    texts = ["fine"] * 700 + ["a\0b"]
    with pytest.raises(ps.SchemaError, match=r"record 700, field 'name': the text has a NUL"):
        ps.write({"name": texts}, str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


def test_a_null_names_its_record(tmp_path: Path) -> None:
    for values in ([1.0] * 9 + [None], ["a"] * 9 + [None], [[1]] * 9 + [None]):
        with pytest.raises(ps.SchemaError, match=r"record 9, field 'x'.*is null"):
            ps.write(pa.table({"x": pa.array(values)}), str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.list_(pa.list_(pa.int8())),
        pa.month_day_nano_interval(),
        pa.map_(pa.int8(), pa.int8()),
    ],
)
def test_what_hdf5_cannot_hold_is_refused_before_the_first_byte(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="field 'x'"):
        ps.write(pa.table({"x": pa.array([], kind)}), str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("names", [["a", "a/b"], ["a//b"], ["/a"], ["."], ["nul\0"]])
def test_names_that_are_not_paths_are_refused(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="rename"):
        ps.write({name: [1] for name in names}, str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


def test_a_label_that_comes_later_is_refused(tmp_path: Path) -> None:
    parts = [pa.array(names).dictionary_encode() for names in (["a", "b"] * 40_000, ["c"])]
    with pytest.raises(ps.SchemaError, match="'c'"):
        ps.write(pa.table({"l": pa.chunked_array(parts)}), str(tmp_path / "w.h5"))


def test_marked_bits_keep_their_mark(tmp_path: Path) -> None:
    field = pa.field("x", pa.uint16(), metadata={DTYPE_KEY: b"bfloat16"})
    path = str(tmp_path / "w.h5")
    ps.write(pa.table([pa.array([1, 2], pa.uint16())], pa.schema([field])), path)
    assert opened(path).schema.field("x").metadata[DTYPE_KEY] == b"bfloat16"


def test_no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    ps.write({"x": np.arange(100_000)}, str(tmp_path / "w.h5"))
    with pytest.raises(ps.SchemaError):
        ps.write({"x": ["a\0"]}, str(tmp_path / "v.h5"))
    assert os.listdir(tmp_path / "spool") == []


def test_random_files_have_other_bytes_only_for_other_records(tmp_path: Path) -> None:
    rng = random.Random(1)
    wanted = pa.table(
        {"x": [rng.random() for _ in range(70_000)], "t": [str(n) for n in range(70_000)]}
    )
    files = []
    for cut in (1000, 70_000, 777):
        path = tmp_path / f"{cut}.h5"
        ps.write(pa.Table.from_batches(wanted.to_batches(max_chunksize=cut)), str(path))
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_a_schema_too_large_for_an_attribute_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    names = [f"{n:0150}" for n in range(300)]
    plain = {name: [1] for name in names}
    ps.write(plain, str(tmp_path / "w.h5"))
    assert table(str(tmp_path / "w.h5")).to_pydict() == plain
    large = pa.table({name: pa.array(["a"], pa.large_string()) for name in names})
    with pytest.raises(ps.SchemaError, match="too large for an attribute"):
        ps.write(large, str(tmp_path / "v.h5"))
    assert not (tmp_path / "v.h5").exists()
