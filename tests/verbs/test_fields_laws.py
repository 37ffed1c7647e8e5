"""Laws of changing fields: after any edits, the records equal a table to which the same edits were applied."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
import strategies

FEW = ["a", "b", "c", "long/name", "é"]
"""Few names, so that edits affect the same fields."""


def columns_of(num_records: int) -> st.SearchStrategy[pa.Array]:
    """The values of one field, of a type that an Example can have."""

    def values(one: st.SearchStrategy[Any], type_: pa.DataType) -> st.SearchStrategy[pa.Array]:
        return st.lists(one, min_size=num_records, max_size=num_records).map(
            lambda given: pa.array(given, type_)
        )

    return st.one_of(
        values(strategies.int64s, pa.int64()),
        values(strategies.float32s, pa.float32()),
        values(st.binary(max_size=20), pa.binary()),
        values(st.lists(strategies.int64s, min_size=2, max_size=4), pa.list_(pa.int64())),
    )


@st.composite
def edits(draw: st.DrawFn) -> tuple[dict[str, pa.Array], list[tuple[str, Any]], int]:
    """Columns to begin with, edits that are possible one after another, and a number of shards."""
    num_records = draw(st.integers(1, 12))
    column = columns_of(num_records)
    names = draw(st.lists(st.sampled_from(FEW), min_size=1, max_size=3, unique=True))
    start = {name: draw(column) for name in names}
    known, done = list(names), []
    for _ in range(draw(st.integers(1, 5))):
        free = [name for name in FEW if name not in known]
        possible = ["replace"] + ["add", "rename"] * bool(free) + ["drop"] * (len(known) > 1)
        kind = draw(st.sampled_from(possible))
        if kind == "add":
            name = draw(st.sampled_from(free))
            done.append((kind, {name: draw(column)}))
            known.append(name)
        elif kind == "replace":
            done.append((kind, {draw(st.sampled_from(known)): draw(column)}))
        elif kind == "drop":
            name = draw(st.sampled_from(known))
            done.append((kind, [name]))
            known.remove(name)
        else:
            old, new = draw(st.sampled_from(known)), draw(st.sampled_from(free))
            done.append((kind, {old: new}))
            known[known.index(old)] = new
    return start, done, draw(st.integers(1, min(3, num_records)))


def meant(columns: dict[str, pa.Array], kind: str, what: Any) -> dict[str, pa.Array]:
    """The expected result of an edit of columns."""
    if kind == "drop":
        return {name: column for name, column in columns.items() if name not in what}
    if kind == "rename":
        return {what.get(name, name): column for name, column in columns.items()}
    return {**columns, **what}


def do(source: Any, kind: str, what: Any, **where: Any) -> None:
    verb: Any = {
        "add": ps.add_fields,
        "replace": ps.replace_fields,
        "drop": ps.drop_fields,
        "rename": ps.rename_fields,
    }[kind]
    verb(source, what, **where)


@pytest.mark.parametrize("suffix", ["tfrecord", "parquet"])
@given(case=edits())
def test_any_edits_make_the_table_that_they_mean(suffix: str, case: Any) -> None:
    columns, done, num_shards = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = ps.write(columns, folder / f"x.{suffix}", num_shards=num_shards).paths
        for kind, what in done:
            do(paths, kind, what, in_place=True, verify=True)
            columns = meant(columns, kind, what)
        ps.write(columns, folder / "wanted.tfrecord")
        found = ps.diff(list(paths), folder / "wanted.tfrecord")
        assert found.equal, (found.fields, found.records)
        assert sorted(ps.open(list(paths)).schema.names) == sorted(columns)


@given(case=edits())
def test_edits_go_to_a_folder_and_leave_the_source(case: Any) -> None:
    columns, done, num_shards = case
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "0"
        source.mkdir()
        ps.write(columns, source / "x.tfrecord", num_shards=num_shards)
        for place, (kind, what) in enumerate(done):
            into = folder / f"{place + 1}"
            before = {path: path.read_bytes() for path in source.glob("*.tfrecord")}
            do(source, kind, what, into=f"{into}/")
            assert {path: path.read_bytes() for path in source.glob("*.tfrecord")} == before
            source, columns = into, meant(columns, kind, what)
        ps.write(columns, folder / "wanted.tfrecord")
        assert ps.diff(source, folder / "wanted.tfrecord").equal


@settings(max_examples=40)  # each example writes, reads and verifies up to nine files
@given(
    old=strategies.batches(), new=strategies.batches(min_records=20, max_records=20), data=st.data()
)
def test_an_overlay_baked_in_is_the_field_added(
    old: pa.RecordBatch, new: pa.RecordBatch, data: st.DataObject
) -> None:
    new = new.slice(0, old.num_rows).rename_columns([f"new {n}" for n in new.schema.names])
    num_shards = data.draw(st.integers(1, min(3, old.num_rows)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "added").mkdir()
        added = ps.write(old, folder / "added" / "x.tfrecord", num_shards=num_shards).paths
        shutil.copytree(folder / "added", folder / "baked")
        baked = [str(folder / "baked" / Path(path).name) for path in added]
        ps.add_fields(added, pa.table(new), in_place=True)
        ps.add_fields(baked, pa.table(new), name="beside")
        assert ps.diff(list(added), baked).equal
        ps.bake_fields(baked, in_place=True, verify=True)
        assert ps.overlays(baked) == []
        for one, other in zip(added, baked, strict=True):
            assert Path(one).read_bytes() == Path(other).read_bytes()


KEYS = st.one_of(
    st.lists(strategies.int64s, min_size=1, max_size=20, unique=True),
    st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=20, unique=True),
    st.lists(strategies.keys, min_size=1, max_size=20, unique=True),
)


@given(keys=KEYS, seed=st.integers(), data=st.data())
def test_by_a_key_is_by_position_after_sorting(keys: list[Any], seed: int, data: Any) -> None:
    values = data.draw(columns_of(len(keys)))
    order = list(range(len(keys)))
    random.Random(seed).shuffle(order)
    extra = [] if isinstance(keys[0], int) or data.draw(st.booleans()) else [type(keys[0])()]
    table = pa.table({"key": [keys[n] for n in order], "value": values.take(pa.array(order))})
    if extra:  # a row that no record needs
        row = pa.table({"key": extra, "value": values.slice(0, 1)}, schema=table.schema)
        table = pa.concat_tables([table, row])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "x.tfrecord"
        ps.write({"key": keys}, source)
        ps.add_fields(source, table, by="key", into=folder / "by.tfrecord")
        ps.add_fields(source, {"value": values}, into=folder / "aligned.tfrecord")
        assert (folder / "by.tfrecord").read_bytes() == (folder / "aligned.tfrecord").read_bytes()


@given(case=edits())
def test_compressed_shards_hold_the_same_as_plain_shards(case: Any) -> None:
    columns, done, _ = case
    with tempfile.TemporaryDirectory() as name:
        made = []
        for compression in (None, "gzip", "zlib"):
            path = Path(name) / f"{compression}.tfrecord"
            ps.write(columns, path, compression=compression)
            for kind, what in done:
                do(path, kind, what, in_place=True)
            dataset = ps.open(path, raw=True)
            made.append([row["record"] for row in dataset])
            head = path.read_bytes()[:2]
            assert (head == b"\x1f\x8b") == (compression == "gzip")
            # The length of a first record may begin with 0x78 as well, but not with a head of zlib.
            is_zlib = head[0] == 0x78 and int.from_bytes(head, "big") % 31 == 0
            assert is_zlib == (compression == "zlib")
        assert made[0] == made[1] == made[2]
