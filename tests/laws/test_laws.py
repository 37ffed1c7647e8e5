"""Laws for every registered format; each format is tested only for the abilities that it claims."""

from __future__ import annotations

import gc
import pickle
import random
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held import FILES, WRITABLE, held, small_table, table_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.contract.format import Format
from penstock.verbs.write.write import write
from places import Place, at

THREADS = (1, 2, 5)
per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)
per_file_format = pytest.mark.parametrize("fmt", FILES, ids=lambda fmt: fmt.info.name)
# Hypothesis runs many examples in one folder; each overwrites the previous example's file.
in_one_folder = settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def written(fmt: Format, folder: Place, data: Any, name: str = "a", **options: Any) -> str:
    """A shard of this format."""
    path = str(folder / name) + fmt.info.extensions[0]
    made = write(data, path, format=fmt.info.name, index=False, overwrite=True, **options)
    return made.paths[0]


def contents(path: str) -> dict[str, bytes]:
    """The bytes of a shard: those of its file, or of each file in its folder."""
    root = at(path)
    if root.is_file():
        return {"": root.read_bytes()}
    inside = [one for one in root.rglob("*") if one.is_file()]
    return {str(one.relative_to(root)): one.read_bytes() for one in inside}


def some(numbers: range, place: Place) -> Sequence[int]:
    """All of these numbers for files, and some for objects, which take longer to write."""
    return numbers if isinstance(place, Path) else random.Random(7).sample(numbers, 40)


def opened(path: str, folder: Place, schema: pa.Schema | None = None, **options: Any) -> ps.Dataset:
    """A dataset whose sidecars are kept in a separate folder."""
    return ps.open(path, schema=schema, index=str(folder / "indexes"), **options)


def whole(dataset: ps.Dataset, **options: Any) -> pa.Table:
    found = list(dataset.scan(**options))
    return pa.Table.from_batches(found, schema=found[0].schema if found else dataset.schema)


def same(found: Any, wanted: Any) -> None:
    """Equal values, column by column; fields' nullability and metadata may differ."""
    assert found.schema.names == wanted.schema.names
    for name in wanted.schema.names:
        left, right = found.column(name), wanted.column(name)
        if left.type != right.type:
            left = left.cast(right.type)
        assert left.to_pylist() == right.to_pylist(), name


def same_rows(found: list[dict[str, Any]], wanted: Any) -> None:
    """Records as dicts: the values of a table, with the tensors of fixed shapes as arrays of these."""
    assert len(found) == wanted.num_rows
    for name in wanted.schema.names:
        type_ = wanted.schema.field(name).type
        values = [row[name] for row in found]
        if isinstance(type_, pa.FixedShapeTensorType):
            shape = tuple(type_.shape)
            assert all(isinstance(v, np.ndarray) and v.shape == shape for v in values), name
            values = [value.ravel().tolist() for value in values]
        assert values == wanted.column(name).to_pylist(), name
    assert all(list(row) == wanted.schema.names for row in found)


def drawn(fmt: Format, data: st.DataObject) -> pa.RecordBatch:
    """Records of any kind that the format can hold."""
    kind = held(fmt)
    if kind.batches is not None:
        return data.draw(kind.batches())
    table = table_of(fmt)
    first = data.draw(st.integers(0, table.num_rows - 1))
    return table.slice(first, data.draw(st.integers(1, 20))).combine_chunks().to_batches()[0]


@per_format
@in_one_folder
@given(data=st.data())
def test_write_then_read_gives_the_same_batch(
    fmt: Format, data: st.DataObject, place: Place
) -> None:
    batch = drawn(fmt, data)
    path = written(fmt, place, batch)
    dataset = ps.open(path, schema=batch.schema, index="never")
    found = whole(dataset)
    same(found, batch)
    if fmt.info.lossless:
        assert found.schema.equals(batch.schema)


@per_format
@in_one_folder
@given(data=st.data())
def test_what_is_inferred_is_what_was_written(
    fmt: Format, data: st.DataObject, place: Place
) -> None:
    batch = drawn(fmt, data)
    path = written(fmt, place, batch)
    same(whole(ps.open(path, index="never")), batch)


@per_format
def test_take_equals_scan(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = written(fmt, place, table)
    dataset = opened(path, place)
    everything = whole(dataset)
    rng = random.Random(1)
    asked = [
        [0],
        [len(dataset) - 1, 0, -1],
        [rng.randrange(len(dataset)) for _ in range(300)],
        list(range(100, 400)),
        [7, 7, 7],
        [],
    ]
    for numbers in asked:
        got = dataset.take(numbers)
        assert got.num_rows == len(numbers)
        wanted = everything.take(pa.array([n % len(dataset) for n in numbers], pa.int64()))
        same(got, wanted)
    same(dataset[5:9], everything.slice(5, 4))
    same_rows([dataset[12]], everything.slice(12, 1))
    same_rows(dataset.__getitems__([3, 1]), everything.take([3, 1]))
    for wrong in (len(dataset), -len(dataset) - 1):
        with pytest.raises(ps.RecordIndexError):
            dataset[wrong]


@per_format
def test_projection_commutes(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = written(fmt, place, table)
    everything = whole(opened(path, place))
    names = table.schema.names
    both_ends = list(dict.fromkeys([names[-1], names[0]]))
    for columns in (names[1:2], both_ends, names[::-1], []):
        dataset = opened(path, place)
        projected = list(dataset.scan(columns=columns))
        assert sum(batch.num_rows for batch in projected) == table.num_rows
        assert all(batch.schema.names == columns for batch in projected)
        if not columns:
            continue
        same(pa.Table.from_batches(projected), everything.select(columns))
        narrow = opened(path, place, columns=columns)
        assert narrow.schema.names == columns
        same(whole(narrow), everything.select(columns))
        same(narrow.take([9, 3]), everything.select(columns).take([9, 3]))
    with pytest.raises(ps.SchemaError):
        list(opened(path, place).scan(columns=["no such column"]))


@per_format
def test_threads_and_batch_sizes_give_the_same_records_in_the_same_order(
    fmt: Format, place: Place
) -> None:
    table = table_of(fmt)
    paths = [written(fmt, place, table.slice(n * 1000, 1000), f"s{n}") for n in range(5)]
    dataset = opened(paths, place)  # type: ignore[arg-type]
    for threads in THREADS:
        same(whole(dataset, threads=threads), table)
        for batch_records in (1, 7, 1000, 1024, 10_000):
            if batch_records == 1 and threads != 2:
                continue
            found = list(dataset.scan(threads=threads, batch_records=batch_records))
            sizes = [batch.num_rows for batch in found]
            assert all(size == batch_records for size in sizes[:-1])
            assert 0 < sizes[-1] <= batch_records
            same(pa.Table.from_batches(found), table)


@per_format
def test_an_index_changes_nothing_that_is_read(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = written(fmt, place, table)
    without = whole(ps.open(path, index="never"))
    dataset = opened(path, place)
    assert len(dataset) == table.num_rows
    same(whole(dataset), without)
    same(whole(opened(path, place)), without)
    if isinstance(place, Path):
        same(whole(opened(path, place, mmap=True)), without)


@per_file_format
def test_every_truncation_is_located(fmt: Format, place: Place) -> None:
    """A small file is truncated at every byte. If the format has no end marker, a truncation between records is
    detected by the index, which no longer matches the file."""
    path = written(fmt, place, small_table(fmt))
    data = at(path).read_bytes()
    wanted = whole(ps.open(path, index="never")).to_pylist()
    borders = 0
    for cut in some(range(len(data)), place):
        at(path).write_bytes(data[:cut])
        try:
            # The schema is given, so that a file without records can be read.
            schema = small_table(fmt).schema
            found = whole(ps.open(path, index="never", schema=schema, format=fmt.info.name))
        except ps.FormatError as error:
            located = (error.file, str(error).startswith(path))
        else:
            borders += 1
            located = (path, True)
            assert found.to_pylist() == wanted[: found.num_rows]
            assert found.num_rows < len(wanted)
        assert located == (path, True), cut
    assert borders <= held(fmt).cuts_unseen


@per_format
def test_two_runs_write_the_same_bytes(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    first = contents(written(fmt, place, table, "one", threads=1))
    for threads in THREADS:
        again = contents(written(fmt, place, table, "two", threads=threads))
        assert again == first, threads
    recut = pa.Table.from_batches(table.to_batches(max_chunksize=333))
    assert contents(written(fmt, place, recut, "three")) == first


@per_file_format
def test_every_flipped_bit_under_a_checksum_is_reported(fmt: Format, place: Place) -> None:
    if not fmt.info.has_checksums:
        pytest.skip("the format stores no checksums and makes no such promise")
    # Parquet's pages have checksums, but its footer does not, so flips there may go unnoticed.
    path = written(fmt, place, small_table(fmt))
    data = bytearray(at(path).read_bytes())
    schema = small_table(fmt).schema
    wanted = whole(ps.open(path, index="never", schema=schema)).to_pylist()
    covered = len(data)
    if fmt.info.name == "parquet":
        covered = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for bit in some(range(8 * covered), place):
        data[bit >> 3] ^= 1 << (bit & 7)
        at(path).write_bytes(data)
        try:
            found = whole(ps.open(path, index="never", schema=schema, format=fmt.info.name))
            assert found.to_pylist() == wanted, bit
            assert fmt.info.name != "tfrecord", bit
        except (ps.PenstockError, FileNotFoundError):
            pass
        data[bit >> 3] ^= 1 << (bit & 7)


@per_format
def test_a_pickled_dataset_reads_the_same(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = written(fmt, place, table)
    dataset = opened(path, place, columns=table.schema.names[::2])
    again = pickle.loads(pickle.dumps(dataset))
    assert again.schema.equals(dataset.schema)
    assert len(again) == len(dataset)
    assert again.fingerprint == dataset.fingerprint
    same(whole(again), whole(dataset))
    twice = pickle.loads(pickle.dumps(again))
    assert twice[17] == dataset[17]


@per_format
def test_shards_have_format_records_and_bytes(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    paths = [written(fmt, place, table.slice(n * 10, 10 + n), f"s{n}") for n in range(3)]
    dataset = opened(paths, place)  # type: ignore[arg-type]
    for shard, path, num_records in zip(dataset.shards, paths, (10, 11, 12), strict=True):
        assert shard.path == path
        assert shard.format == fmt.info.name
        assert shard.num_records == num_records
        assert shard.num_bytes == sum(map(len, contents(path).values()))
    assert len(dataset) == 33


@per_format
def test_options_that_a_format_lacks_are_refused(fmt: Format, place: Place) -> None:
    path = written(fmt, place, table_of(fmt))
    with pytest.raises(TypeError, match=f"{fmt.info.name} has no option 'colour'"):
        len(opened(path, place, colour="red"))
    if fmt.info.has_raw_records:
        (field,) = opened(path, place, raw=True).schema
        assert pa.types.is_binary(field.type) or field.type == pa.binary_view()
    else:
        with pytest.raises(ps.UnsupportedError, match="raw=True returns the framed records"):
            len(opened(path, place, raw=True))
    if fmt.info.takes_descriptions:
        return
    with pytest.raises(ps.UnsupportedError, match=r"can only be a pyarrow\.Schema"):
        len(opened(path, place, {"a": pa.int8()}))  # type: ignore[arg-type]


@per_format
def test_a_dataset_is_an_arrow_stream(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    dataset = opened(written(fmt, place, table), place)
    same(pa.table(dataset), table)


@per_format
def test_a_file_without_records_is_valid(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = written(fmt, place, table.slice(0, 0))
    dataset = opened(path, place, schema=table.schema)
    assert len(dataset) == 0
    assert sum(batch.num_rows for batch in dataset.scan()) == 0
    assert dataset.take([]).num_rows == 0
    assert dataset.to_table([]).num_rows == 0


@per_format
def test_a_format_is_recognised_by_its_bytes(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = at(written(fmt, place, table))
    nameless = path.rename(place / "nameless")
    assert opened(str(nameless), place).shards[0].format == fmt.info.name


@per_format
def test_unreferenced_objects_are_freed_immediately(fmt: Format, place: Place) -> None:
    """Readers have buffers of megabytes, which must not wait for Python's cycle collector."""
    path = written(fmt, place, table_of(fmt))
    gc.collect()
    gc.disable()
    try:
        dataset = opened(path, place)
        known = weakref.ref(dataset), weakref.ref(dataset.files.reader(0))
        assert all(batch.num_rows for batch in dataset.scan(threads=2))
        dataset.take([0])
        del dataset
        assert [one() for one in known] == [None, None]
    finally:
        gc.enable()
