"""Data that penstock wrote reads back with its types, in every format: the sidecar stores the types that a format
cannot hold."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from held import WRITABLE
from hypothesis import given, settings
from hypothesis import strategies as st
from test_laws import drawn, in_one_folder, same, whole

import penstock as ps
from penstock.contract.format import Format
from penstock.contract.options import options_from
from penstock.framing.format import FramedFormat
from penstock.verbs.write.write import write
from places import Place, at
from reading import sidecar_of

per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)


def kept_by(fmt: Format, schema: pa.Schema) -> pa.Schema | None:
    kept = fmt.kept_schema(schema, options_from(fmt.write_options, {}, fmt.info.name))
    return schema if kept is None and fmt.info.lossless else kept


@per_format
@settings(in_one_folder, max_examples=20)
@given(data=st.data())
def test_what_is_written_reads_back_with_its_types(
    fmt: Format, data: st.DataObject, place: Place
) -> None:
    batch = drawn(fmt, data)
    path = str(place / "a") + fmt.info.extensions[0]
    path = write(batch, path, format=fmt.info.name, overwrite=True).paths[0]
    wanted = kept_by(fmt, batch.schema)
    dataset = ps.open(path)
    found = whole(dataset)
    same(found, batch)
    if wanted is not None:
        assert [(f.name, f.type) for f in found.schema] == [(f.name, f.type) for f in wanted]
        assert ps.info(dataset).types == ("stored" if fmt.info.lossless else "kept")


NUMBERS = pa.schema([("n", pa.int16())])
KEEPING = [
    fmt
    for fmt in WRITABLE
    if kept_by(fmt, NUMBERS) is not None and not fmt.info.lossless and fmt.info.name != "recordio"
]


@pytest.fixture(params=KEEPING, ids=lambda fmt: fmt.info.name)
def path(request: pytest.FixtureRequest, place: Place) -> str:
    fmt: Format = request.param
    made = ps.write({"n": pa.array([1, 2, 3], pa.int8())}, place / f"a{fmt.info.extensions[0]}")
    return made.paths[0]


def types_of(path: object) -> tuple[str, list[pa.DataType]]:
    dataset = ps.open(path)
    return ps.info(dataset).types, dataset.schema.types


@pytest.mark.parametrize(
    "type_", [pa.float32(), pa.float16(), pa.int16(), pa.uint64(), pa.bool_()], ids=str
)
@pytest.mark.parametrize("fmt", KEEPING, ids=lambda fmt: fmt.info.name)
def test_numbers_that_a_format_widens_are_as_narrow_as_they_were(
    fmt: Format, type_: pa.DataType, tmp_path: Path
) -> None:
    batch = pa.record_batch({"n": pa.array([0, 1, 1]).cast(type_)})
    paths = ps.write(batch, tmp_path / f"a{fmt.info.extensions[0]}", num_shards=2).paths
    assert types_of(paths) == ("kept", [type_])
    ps.add_fields(paths, {"more": [1, 2, 3]})
    assert types_of(paths) == ("kept", [type_, pa.int64()])
    assert [row["n"] for row in ps.open(paths)] == [0, 1, 1]


@pytest.mark.parametrize("fmt", KEEPING, ids=lambda fmt: fmt.info.name)
def test_other_fields_keep_their_types_if_fields_are_added(fmt: Format, tmp_path: Path) -> None:
    batch = pa.record_batch(
        {"n": pa.array([1, 2, 3], pa.int8()), "x": pa.array([1, 2, 3.5], pa.float32())}
    )
    paths = ps.write(batch, tmp_path / f"a{fmt.info.extensions[0]}", num_shards=2).paths
    wanted = [pa.int8(), pa.float32(), pa.int16()]
    new = {"more": pa.array([4, 5, 6], pa.int16())}
    other = ps.add_fields(paths, new, into=tmp_path / "other").paths
    ps.add_fields(paths, new, in_place=True)
    for made in (paths, other):
        assert types_of(made) == ("kept", wanted)
        assert [row["more"] for row in ps.open(made)] == [4, 5, 6]
        assert ps.verify(made).ok


@pytest.mark.parametrize("fmt", KEEPING, ids=lambda fmt: fmt.info.name)
def test_a_shard_that_is_appended_keeps_the_types_of_the_others(
    fmt: Format, tmp_path: Path
) -> None:
    table = pa.table({"n": pa.array([1, 2, 3], pa.int8())})
    ps.write(table, tmp_path / f"0-a{fmt.info.extensions[0]}")
    made = ps.append(table, tmp_path, shard="new")
    assert types_of(made.paths) == types_of(tmp_path) == ("kept", [pa.int8()])
    assert [row["n"] for row in ps.open(tmp_path)] == [1, 2, 3] * 2


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("fmt", KEEPING, ids=lambda fmt: fmt.info.name)
def test_a_repaired_file_keeps_its_types(fmt: Format, in_place: bool, tmp_path: Path) -> None:
    path = tmp_path / f"a{fmt.info.extensions[0]}"
    ps.write({"n": pa.array(range(300), pa.int16())}, path)
    told, data = path.stat(), bytearray(path.read_bytes())
    # In the other formats, nothing would reveal the damage.
    data[-3] ^= isinstance(fmt, FramedFormat)
    path.write_bytes(data)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    for index in (True, str(tmp_path / "kept")) if not in_place else (True,):
        how: dict[str, Any] = {"in_place": True} if in_place else {"into": other}
        ps.repair(path, index=index, overwrite=not in_place, **how)
        made = ps.open(path if in_place else other, index="auto" if index is True else index)
        assert (ps.info(made).types, made.schema.types) == ("kept", [pa.int16()])
        assert set(range(299)) - {row["n"] for row in made} <= {298} and ps.verify(made.paths).ok
    if not in_place:
        ps.repair(path, into=tmp_path / f"b{path.suffix}", index=False)
        assert types_of(tmp_path / f"b{path.suffix}")[0] in ("inferred", "stored")


def test_a_file_with_the_sidecar_of_another_file_is_repaired_without_types(tmp_path: Path) -> None:
    ps.write({"n": pa.array(range(300), pa.int16())}, tmp_path / "a.tfrecord")
    ps.write({"n": range(1000, 1400)}, tmp_path / "b.tfrecord", index=False)
    data = bytearray((tmp_path / "b.tfrecord").read_bytes())
    data[-3] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    ps.repair(tmp_path / "a.tfrecord", in_place=True)
    assert types_of(tmp_path / "a.tfrecord") == ("inferred", [pa.int64()])


def test_an_explicit_schema_counts_more(path: str) -> None:
    assert types_of(path) == ("kept", [pa.int8()])
    dataset = ps.open(path, schema=pa.schema({"n": pa.int32()}))
    assert (ps.info(dataset).types, dataset.schema.types) == ("given", [pa.int32()])


def test_without_a_sidecar_types_come_from_the_file(path: str) -> None:
    at(sidecar_of(path)).unlink()
    assert types_of(path)[0] in ("inferred", "stored")
    assert ps.open(path, index="never").schema == ps.open(path).schema


def test_a_copy_keeps_its_types(path: str, place: Place) -> None:
    other = place / f"new-{at(path).name}"
    at(sidecar_of(other)).write_bytes(at(sidecar_of(path)).read_bytes())
    other.write_bytes(at(path).read_bytes())
    assert types_of(other) == ("kept", [pa.int8()])


def test_a_file_that_was_replaced_has_its_own_types(path: str, place: Place) -> None:
    new = place / f"new{at(path).suffix}"
    ps.write({"n": [300, 2, 3]}, new, index=False)
    at(path).write_bytes(new.read_bytes())
    assert types_of(path)[0] in ("inferred", "stored")
    assert ps.open(path).take([0]).column(0).to_pylist() == [300]


def test_files_that_keep_other_types_are_read(path: str, place: Place) -> None:
    other = str(place / f"b{at(path).suffix}")
    ps.write({"n": pa.array([4], pa.int8())}, other)
    assert types_of([path, other]) == ("kept", [pa.int8()])
    ps.write({"n": pa.array([4], pa.int16())}, other, overwrite=True)
    if path.endswith(".npy"):
        return  # this format stores them itself, so these are two kinds of file
    if isinstance(place, Path):
        assert types_of([path, other])[0] in ("inferred", "stored")
        return
    # In a store, the first file decides, so that not every sidecar has to be read.
    assert types_of([path, other]) == ("kept", [pa.int8()])
    ps.write({"n": pa.array([300], pa.int16())}, other, overwrite=True)
    with pytest.raises(ps.SchemaError, match="300"):
        ps.open([path, other]).to_table()
