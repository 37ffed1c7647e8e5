"""`write`: the data that it accepts, how it divides and names shards, and the files that it leaves."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import penstock as ps
from penstock import SchemaError
from penstock.verbs.convert.convert import convert
from penstock.verbs.write.incoming import batches_of
from penstock.verbs.write.write import write
from reading import index_of

TABLE = pa.table({"id": list(range(10)), "name": [f"n{i}" for i in range(10)]})


def ids_of(path: str | Path) -> list[int]:
    from penstock.datasets.open import open as open_dataset

    found: list[int] = []
    for batch in open_dataset(str(path)).scan():
        found += batch.column("id").to_pylist()
    return found


def table_of(data: Any) -> pa.Table:
    schema, batches, num_records, _ = batches_of(data)
    table = pa.Table.from_batches(batches, schema)
    assert num_records in (None, table.num_rows)
    return table


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "iterable of batches": lambda: iter(TABLE.to_batches(max_chunksize=3)),
    "list of tables": lambda: [TABLE.slice(0, 4), TABLE.slice(4)],
    "struct array": TABLE.to_struct_array,
    "polars": lambda: pl.DataFrame(TABLE),
    "pandas": lambda: pd.DataFrame(
        {"id": range(10), "name": [f"n{i}" for i in range(10)]}, index=list("abcdefghij")
    ),
    "dict of lists": lambda: {"id": list(range(10)), "name": [f"n{i}" for i in range(10)]},
    "dict of arrays": lambda: {"id": np.arange(10), "name": TABLE["name"]},
    "iterable of dicts": lambda: ({"id": i, "name": f"n{i}"} for i in range(10)),
    "list of dicts": lambda: [{"id": i, "name": f"n{i}"} for i in range(10)],
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_every_kind_of_source_is_written(tmp_path: Path, source: Callable[[], Any]) -> None:
    for options in ({}, {"num_shards": 3}, {"shard_records": 4}):
        folder = tmp_path / str(len(options) and next(iter(options)))
        folder.mkdir()
        summary = write(source(), folder / "x.tfrecord", **options)  # type: ignore[arg-type]
        assert summary.num_records == 10
        assert [i for path in summary.paths for i in ids_of(path)] == list(range(10))
        assert summary.num_bytes == sum(os.path.getsize(path) for path in summary.paths)


def test_duckdb_relations_are_written(tmp_path: Path) -> None:
    import duckdb

    relation = duckdb.sql("select range as id from range(10)")
    write(relation, tmp_path / "x.tfrecord", num_shards=2)
    assert ids_of(tmp_path / "x-00001-of-00002.tfrecord") == [5, 6, 7, 8, 9]


def test_a_dataset_is_written_again(tmp_path: Path) -> None:
    from penstock.datasets.open import open as open_dataset

    write(TABLE, tmp_path / "a.tfrecord")
    write(open_dataset(str(tmp_path / "a.tfrecord")), tmp_path / "b.tfrecord", num_shards=2)
    assert ids_of(tmp_path / "b-00000-of-00002.tfrecord") == [0, 1, 2, 3, 4]


def test_numpy_arrays_of_several_dimensions_become_tensors() -> None:
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    column = table_of({"image": images})["image"]
    assert column.type == pa.fixed_shape_tensor(pa.uint8(), (3, 4))
    assert np.array_equal(column.combine_chunks().to_numpy_ndarray(), images)
    flags = table_of({"flags": np.eye(2, dtype=bool)})["flags"]
    assert flags.combine_chunks().storage.to_pylist() == [[True, False], [False, True]]
    swapped = table_of({"x": np.array([1, 2], dtype=">i4")})["x"]
    assert swapped.to_pylist() == [1, 2]
    masked = table_of({"x": np.ma.masked_array([1, 2], mask=[False, True])})["x"]
    assert masked.to_pylist() == [1, None]
    strided = table_of({"x": np.arange(12).reshape(3, 4)[:, ::2]})["x"]
    assert strided.combine_chunks().storage.to_pylist() == [[0, 2], [4, 6], [8, 10]]
    empty = table_of({"x": np.zeros((3, 0), np.float32)})["x"]
    assert empty.to_pylist() == [[], [], []]


def test_dicts_make_columns_of_their_values() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 1, "b": "x", "c": np.array([1, 2], np.int16), "d": np.zeros((2, 2)), "e": [1.5]},
        {"a": None, "c": np.array([], np.int16), "d": None, "f": np.float32(2), "e": []},
        {"b": "y", "a": 3, "g": {"k": 1}},
    ]
    table = table_of(rows)
    assert table.schema.names == ["a", "b", "c", "d", "e", "f", "g"]
    assert table["a"].to_pylist() == [1, None, 3]
    assert table["c"].type == pa.list_(pa.int16())
    assert table["c"].to_pylist() == [[1, 2], [], None]
    assert table["d"].type == pa.fixed_shape_tensor(pa.float64(), (2, 2))
    assert table["d"].null_count == 2
    assert table["e"].to_pylist() == [[1.5], [], None]
    assert table["f"].type == pa.float32()
    assert table["g"].to_pylist() == [None, None, {"k": 1}]


MISMATCHES: dict[str, tuple[list[Any], int, str | None]] = {
    "float after int": ([{"a": 1}, {"a": 1.5}], 1, "a"),
    "int after float": ([{"a": 1.5}, {"a": 1}], 1, "a"),
    "bool after int": ([{"a": 1}, {"a": True}], 1, "a"),
    "bytes after str": ([{"a": "x"}, {"a": None}, {"a": b"x"}], 2, "a"),
    "list after scalar": ([{"a": 1}, {"a": [1]}], 1, "a"),
    "other dtype": ([{"a": np.zeros(2)}, {"a": np.zeros(2, np.int8)}], 1, "a"),
    "other shape": ([{"a": np.zeros((2, 2))}, {"a": np.zeros((2, 3))}], 1, "a"),
    "no value": ([{"a": 1}, {"a": object()}], 1, "a"),
    "too large": ([{"a": 1}, {"a": 1 << 70}], 1, "a"),
    "no dict": ([{"a": 1}, 5], 1, None),
    "later": ([{"a": 1}] * 2500 + [{"a": "x"}], 2500, "a"),
    "later, in a list": ([{"a": [1]}] * 2500 + [{"a": ["x"]}], 2500, "a"),
    "later, a new field": ([{"a": 1}] * 2500 + [{"b": 1}], 2500, "b"),
    "not bytes": ([b"x", b"y", "z"], 2, None),
}


@pytest.mark.parametrize(("rows", "record", "field"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_value_of_another_type_is_an_error_that_says_where(
    tmp_path: Path, rows: list[Any], record: int, field: str | None
) -> None:
    with pytest.raises(SchemaError) as caught:
        write(rows, tmp_path / "x.tfrecord")
    assert (caught.value.record, caught.value.field) == (record, field)
    assert not list(tmp_path.iterdir())


REFUSED: dict[str, Any] = {
    "path": "train.tfrecord",
    "bytes": b"data",
    "number": 5,
    "none": None,
    "list of numbers": [1, 2],
    "list of tuples": [(1, 2)],
    "array of numbers": pa.array([1]),
    "scalar column": {"a": 5},
    "text column": {"a": "text"},
    "NumPy scalar column": {"a": np.float32(1)},
    "0-d column": {"a": np.array(1)},
    "name that is no string": {1: [1]},
}


def test_errors_for_tensors_of_other_shapes_name_a_type_that_holds_them(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="another type") as caught:
        write({"x": [np.ones((2, 3)), np.ones((4, 3))]}, tmp_path / "a.npz")
    assert "VariableShapeTensorType" in str(caught.value.hint)


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_an_argument_that_is_not_a_set_of_records_is_a_type_error(
    tmp_path: Path, data: Any
) -> None:
    with pytest.raises(TypeError, match=r"accepted|name|value for every record"):
        write(data, tmp_path / "x.tfrecord")


def test_columns_of_different_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="'a' has 1, 'b' has 2"):
        write({"a": [1], "b": [1, 2]}, tmp_path / "x.tfrecord")


def test_batches_of_another_schema_are_refused(tmp_path: Path) -> None:
    batches = [pa.record_batch({"a": [1]}), pa.record_batch({"a": ["x"]})]
    with pytest.raises(SchemaError, match="batch 1"):
        write(iter(batches), tmp_path / "x.tfrecord")


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_num_shards_differ_by_one_record_at_most(tmp_path: Path) -> None:
    summary = write(TABLE, tmp_path / "x.tfrecord", num_shards=4, index=False)
    assert names(tmp_path) == [f"x-0000{n}-of-00004.tfrecord" for n in range(4)]
    assert [len(ids_of(path)) for path in summary.paths] == [3, 3, 2, 2]


def test_more_shards_than_records_leaves_empty_shards(tmp_path: Path) -> None:
    summary = write(TABLE.slice(0, 2), tmp_path / "x.tfrecord", num_shards=4, index=False)
    assert [os.path.getsize(path) > 0 for path in summary.paths] == [True, True, False, False]


def test_one_shard_asked_for_is_numbered(tmp_path: Path) -> None:
    write(TABLE, tmp_path / "x.tfrecord.gz", num_shards=1, index=False)
    assert names(tmp_path) == ["x-00000-of-00001.tfrecord.gz"]
    assert (tmp_path / names(tmp_path)[0]).read_bytes()[:2] == b"\x1f\x8b"


def test_shard_records_cut_as_records_come(tmp_path: Path) -> None:
    summary = write(TABLE, tmp_path / "x.tfrecord", shard_records=4)
    assert [len(ids_of(path)) for path in summary.paths] == [4, 4, 2]
    data = [n for n in names(tmp_path) if not n.endswith(".penstock")]
    assert data == [f"x-0000{n}-of-00003.tfrecord" for n in range(3)]
    assert [n for n in names(tmp_path) if n.endswith(".penstock")] == [
        str(index_of(n)) for n in data
    ]


def test_an_exact_number_of_records_leaves_no_empty_shard(tmp_path: Path) -> None:
    assert len(write(TABLE, tmp_path / "x.tfrecord", shard_records=5).paths) == 2


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_shard_bytes_cut_where_they_are_reached(tmp_path: Path, compression: str | None) -> None:
    text = np.random.default_rng(1).bytes(200_000).hex()
    table = pa.table(
        {"id": range(20_000), "text": [text[n * 10 : n * 10 + 10 + n % 17] for n in range(20_000)]}
    )
    options: dict[str, Any] = {"compression": compression, "shard_bytes": 100_000}
    if compression == "gzip":
        options["member_bytes"] = 4096
    summary = write(table, tmp_path / "x.tfrecord", index=False, threads=1, **options)
    assert len(summary.paths) >= 3
    sizes = [os.path.getsize(path) for path in summary.paths]
    allowed = {None: 100, "gzip": 5000, "zlib": 400_000}[compression]
    assert all(100_000 <= size < 100_000 + allowed for size in sizes[:-1]), sizes
    assert [i for path in summary.paths for i in ids_of(path)] == list(range(20_000))
    again = tmp_path / "again"
    again.mkdir()
    pieces = iter(table.to_batches(max_chunksize=177))
    other = write(pieces, again / "x.tfrecord", index=False, threads=3, **options)
    for one, two in zip(summary.paths, other.paths, strict=True):
        assert Path(one).read_bytes() == Path(two).read_bytes()


def test_a_pattern_is_taken_as_written(tmp_path: Path) -> None:
    summary = write(TABLE, tmp_path / "out-{shard:05d}.tfrecord", num_shards=2, index=False)
    assert names(tmp_path) == ["out-00000.tfrecord", "out-00001.tfrecord"]
    assert summary.paths == tuple(str(tmp_path / name) for name in names(tmp_path))
    write(TABLE, tmp_path / "p{shard}.tfrecord", shard_records=5, index=False)
    write(TABLE, tmp_path / "q{shard}.tfrecord", index=False)
    assert names(tmp_path)[2:] == ["p0.tfrecord", "p1.tfrecord", "q0.tfrecord"]
    with pytest.raises(ValueError, match="not a number format"):
        write(TABLE, tmp_path / "{shard:zz}.tfrecord")


def test_existing_files_are_kept_unless_overwrite_is_given(tmp_path: Path) -> None:
    write(TABLE, tmp_path / "x.tfrecord")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        write(TABLE.slice(3), tmp_path / "x.tfrecord")
    assert ids_of(tmp_path / "x.tfrecord") == list(range(10))
    write(TABLE.slice(3), tmp_path / "x.tfrecord", overwrite=True)
    assert ids_of(tmp_path / "x.tfrecord") == list(range(3, 10))
    (tmp_path / "y-00001-of-00002.tfrecord").write_bytes(b"")
    for options in ({"num_shards": 2}, {"shard_records": 5}):
        with pytest.raises(FileExistsError, match="y-00001-of-00002"):
            write(TABLE, tmp_path / "y.tfrecord", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "y-00000-of-00002.tfrecord").exists()


def test_a_file_may_be_written_over_while_it_is_read(tmp_path: Path) -> None:
    from penstock.datasets.open import open as open_dataset

    path = tmp_path / "x.tfrecord"
    write(TABLE, path)
    write(open_dataset(str(path)).scan(), path, overwrite=True)
    assert ids_of(path) == list(range(10))


def test_compression_follows_the_name(tmp_path: Path) -> None:
    write(TABLE, tmp_path / "x.tfrecord.gz")
    assert ids_of(tmp_path / "x.tfrecord.gz") == list(range(10))
    with pytest.raises(ValueError, match=r"ends in \.gz"):
        write(TABLE, tmp_path / "y.tfrecord.gz", compression="zlib")


def test_other_formats_are_written_by_the_same_words(tmp_path: Path) -> None:
    write(TABLE, tmp_path / "x.parquet", num_shards=2)
    tables = [pa.parquet.read_table(tmp_path / f"x-0000{n}-of-00002.parquet") for n in range(2)]
    assert pa.concat_tables(tables).equals(TABLE)
    write(TABLE, tmp_path / "x.arrow")
    with pa.ipc.open_file(tmp_path / "x.arrow") as file:
        assert file.read_all().equals(TABLE)
    write(TABLE, tmp_path / "noextension", format="tfrecord", index=False)
    assert ids_of(tmp_path / "noextension") == list(range(10))
    with pytest.raises(ValueError, match="format="):
        write(TABLE, tmp_path / "x.unknown")


def test_nothing_at_all_is_an_empty_file(tmp_path: Path) -> None:
    assert write([], tmp_path / "x.tfrecord").num_records == 0
    assert (tmp_path / "x.tfrecord").read_bytes() == b""


def test_an_index_goes_to_the_requested_place(tmp_path: Path) -> None:
    (tmp_path / "indexes").mkdir()
    write(TABLE, tmp_path / "x.tfrecord", index=str(tmp_path / "indexes"))
    write(TABLE, tmp_path / "y.tfrecord", index=False)
    assert names(tmp_path) == ["indexes", "x.tfrecord", "y.tfrecord"]
    assert len(names(tmp_path / "indexes")) == 1


def test_progress_counts_over_all_shards(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    write(TABLE, tmp_path / "x.tfrecord", num_shards=3, progress=lambda *at: seen.append(at))
    assert seen == [(4, 10), (7, 10), (10, 10)]


@pytest.mark.parametrize(
    "options",
    [
        {"num_shards": 0},
        {"shard_records": -1},
        {"shard_bytes": 1.5},
        {"num_shards": 2, "shard_bytes": 5},
    ],
)
def test_impossible_cuts_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"whole number|leave out"):
        write(TABLE, tmp_path / "x.tfrecord", **options)


@pytest.mark.parametrize("index", [False, "indexes"])
@pytest.mark.parametrize("by_convert", [False, True])
def test_the_index_of_a_replaced_file_goes_with_it(
    tmp_path: Path, index: bool | str, by_convert: bool
) -> None:
    path, source = str(tmp_path / "a.tfrecord"), str(tmp_path / "source.arrow")
    write({"id": list(range(100))}, path)
    assert os.path.exists(str(index_of(path)))
    kept = index if index is False else str(tmp_path / "indexes")
    if kept:
        os.mkdir(kept)
    if by_convert:
        write({"id": [*range(98), 7, 5]}, source)
        convert(source, path, index=kept, overwrite=True)
    else:
        write({"id": [*range(98), 7, 5]}, path, index=kept, overwrite=True)
    assert not os.path.exists(str(index_of(path)))
    assert ids_of(path)[-2:] == [7, 5]


def test_a_refused_write_leaves_the_index_that_is_there(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    write({"id": [1]}, path)
    with pytest.raises(FileExistsError):
        write({"id": [2]}, path, index=False)
    assert os.path.exists(str(index_of(path)))


def test_sets_and_open_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1], "b": [2]}, path)
    with pytest.raises(TypeError, match="a set has no order"):
        ps.open({str(path)})
    with pytest.raises(TypeError, match="a set has no order"):
        ps.open(path, columns={"a", "b"})  # type: ignore[arg-type]
    with path.open("rb") as file, pytest.raises(TypeError, match="open file is not a path"):
        ps.open(file)
    for limit in (-1, "1MB", 1.5):
        with pytest.raises((TypeError, ValueError), match="the limit record_bytes"):
            ps.open(path, limits={"record_bytes": limit})  # type: ignore[dict-item]
    for word in ("NEVER", "Auto", ""):
        with pytest.raises(ValueError, match="'never'"):
            ps.open(path, index=word)


def test_data_and_path_the_wrong_way_round(tmp_path: Path) -> None:
    swapped: Any = {"a": [1]}
    with pytest.raises(TypeError, match="data comes first, then the path"):
        ps.write(tmp_path / "x.tfrecord", swapped)
