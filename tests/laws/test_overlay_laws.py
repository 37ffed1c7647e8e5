"""Laws for overlays of a shard, whatever its format."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held import NUM_RECORDS, WRITABLE, table_of
from test_laws import contents, opened, same, same_rows, whole, written

import penstock as ps
from overlaying import folder_of
from penstock.contract.format import Format
from penstock.verbs.fields.overlays import write_overlay

OVERLAID = [fmt for fmt in WRITABLE if fmt.info.can_overlay]
per_overlaid_format = pytest.mark.parametrize("fmt", OVERLAID, ids=lambda fmt: fmt.info.name)
COUNT = NUM_RECORDS
NEW = pa.table(
    {
        "score": pa.array(np.arange(COUNT, dtype=np.float32) / 3),  # replaces a field
        "rank": pa.array([None if n % 7 == 0 else COUNT - n for n in range(COUNT)]),
        "animal": pa.array([("cat", "dog", "owl")[n % 3] for n in range(COUNT)]),
        "vector": pa.array([[n, n / 2] for n in range(COUNT)], pa.list_(pa.float32(), 2)),
        "kind": pa.array([("a", "b")[n // 2500] for n in range(COUNT)]).dictionary_encode(),
    }
)


def overlaid(table: pa.Table, new: pa.Table) -> pa.Table:
    """The records with the new fields, which replace fields with the same name."""
    for name in new.schema.names:
        place = table.schema.get_field_index(name)
        field, column = new.schema.field(name), new.column(name)
        table = (
            table.append_column(field, column)
            if place < 0
            else table.set_column(place, field, column)
        )
    return table


def overlay(dataset: ps.Dataset, new: pa.Table, name: str = "new", **options: Any) -> None:
    """Write overlays with columns of all records."""

    def columns_of_shard(shard: int) -> list[pa.RecordBatch]:
        first, last = dataset.files.firsts[shard], dataset.files.firsts[shard + 1]
        return new.slice(first, last - first).to_batches(max_chunksize=700)

    write_overlay(dataset, name, new.schema, columns_of_shard, **options)


@per_overlaid_format
def test_a_scan_returns_the_records_with_their_overlay_values(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    path = written(fmt, tmp_path, table)
    bytes_before = contents(path)
    overlay(opened(path, tmp_path), NEW)
    assert contents(path) == bytes_before
    wanted = overlaid(table, NEW)
    for options in ({}, {"threads": 1}, {"batch_records": 33}, {"batch_records": 10_000}):
        same(whole(opened(path, tmp_path), **options), wanted)
    dataset = opened(path, tmp_path)
    assert dataset.schema.names == wanted.schema.names
    for name in NEW.schema.names:
        assert dataset.schema.field(name).type == NEW.schema.field(name).type
    same(pa.table(dataset), wanted)
    same(whole(opened(path, tmp_path, mmap=True)), wanted)
    same(whole(opened(path, tmp_path, overlays=False)), table)


@per_overlaid_format
def test_take_equals_scan_with_an_overlay(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    path = written(fmt, tmp_path, table)
    overlay(opened(path, tmp_path), NEW)
    wanted = overlaid(table, NEW)
    dataset = opened(path, tmp_path)
    rng = random.Random(2)
    asked = [[0], [COUNT - 1, 0, -1], [rng.randrange(COUNT) for _ in range(300)], [7, 7], []]
    for numbers in [*asked, list(range(2400, 2600))]:
        places = pa.array([n % COUNT for n in numbers], pa.int64())
        same(dataset.take(numbers), wanted.take(places))
        for columns in (["rank"], ["kind", table.schema.names[0]], ["score", "rank"]):
            narrow = opened(path, tmp_path, columns=columns)
            same(narrow.take(numbers), wanted.select(columns).take(places))
    same(dataset[5:9], wanted.slice(5, 4))
    same_rows([dataset[12]], wanted.slice(12, 1))


@per_overlaid_format
def test_projection_commutes_with_an_overlay(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    path = written(fmt, tmp_path, table)
    overlay(opened(path, tmp_path), NEW)
    wanted = overlaid(table, NEW)
    first, last = table.schema.names[0], table.schema.names[-1]
    for columns in (["rank"], ["animal", first], ["score"], ["kind", last, "rank", "score"], []):
        for damage in ("error", "skip"):
            found = list(opened(path, tmp_path, damage=damage).scan(columns=columns))
            assert sum(batch.num_rows for batch in found) == COUNT
            assert all(batch.schema.names == columns for batch in found)
            if columns:
                same(pa.Table.from_batches(found), wanted.select(columns))


@per_overlaid_format
def test_a_schema_chooses_among_fields_of_both(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    path = written(fmt, tmp_path, table)
    overlay(opened(path, tmp_path), NEW)
    wanted = overlaid(table, NEW)
    first = table.schema.field(0)
    asked = pa.schema([("rank", pa.int32()), first, ("score", pa.float64())])
    dataset = opened(path, tmp_path, schema=asked)
    assert dataset.schema.names == asked.names
    found = whole(dataset)
    assert found.schema.types == asked.types
    same(found, wanted.select(asked.names).cast(asked))
    only = pa.schema([("animal", pa.string())])
    same(whole(opened(path, tmp_path, schema=only)), wanted.select(["animal"]))


@per_overlaid_format
def test_overlays_of_several_shards_and_layers(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    paths = [written(fmt, tmp_path, table.slice(n * 1000, 1000), f"s{n}") for n in range(5)]
    overlay(opened(paths, tmp_path), NEW.select(["rank", "animal"]), "one")  # type: ignore[arg-type]
    later = pa.table({"rank": pa.array(np.arange(COUNT) * 2)})
    overlay(opened(paths, tmp_path), later, "two")  # type: ignore[arg-type]
    both = overlaid(overlaid(table, NEW.select(["rank", "animal"])), later)
    dataset = opened(paths, tmp_path)  # type: ignore[arg-type]
    for threads in (1, 2, 5):
        same(whole(dataset, threads=threads), both)
    numbers = [4999, 0, 1000, 999, 2500]
    same(dataset.take(numbers), both.take(pa.array(numbers)))
    ps.remove_overlay(paths, "two")
    first = overlaid(table, NEW.select(["rank", "animal"]))
    same(whole(opened(paths, tmp_path)), first)  # type: ignore[arg-type]
    ps.remove_overlay(paths, "one")
    same(whole(opened(paths, tmp_path)), table)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("*.penstock-fields"))


@per_overlaid_format
def test_shards_without_an_overlay_have_nulls(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    paths = [written(fmt, tmp_path, table.slice(n * 1000, 1000), f"s{n}") for n in range(5)]
    for having in ([0], [3], [1, 4]):
        for number in having:
            part = NEW.slice(number * 1000, 1000).select(["rank", "score"])
            overlay(opened(paths[number], tmp_path), part, "some")
        dataset = opened(paths, tmp_path)  # type: ignore[arg-type]
        found = whole(dataset)
        rank, score = NEW.column("rank").to_pylist(), NEW.column("score").to_pylist()
        assert found.column("rank").to_pylist() == [
            value if n // 1000 in having else None for n, value in enumerate(rank)
        ]
        # A field of the shard is returned if no overlay replaces it.
        old = table.column("score").to_pylist() if "score" in table.schema.names else [None] * COUNT
        assert found.column("score").to_pylist() == [
            value if n // 1000 in having else old[n] for n, value in enumerate(score)
        ]
        same(dataset.take([4500, 3500, 1500]), found.take([4500, 3500, 1500]))
        schema = pa.schema([("rank", pa.int64()), table.schema.field(0)])
        chosen = whole(opened(paths, tmp_path, schema=schema))  # type: ignore[arg-type]
        same(chosen, found.select(schema.names))
        ps.remove_overlay(paths, "some")


@per_overlaid_format
def test_a_pickled_dataset_keeps_its_overlays(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    path = written(fmt, tmp_path, table)
    bare = opened(path, tmp_path).fingerprint
    overlay(opened(path, tmp_path), NEW)
    dataset = opened(path, tmp_path, columns=["rank", table.schema.names[0]])
    again = pickle.loads(pickle.dumps(dataset))
    assert dataset.fingerprint == again.fingerprint != bare
    same(whole(again), whole(dataset))
    overlay(opened(path, tmp_path), NEW.select(["rank"]), overwrite=True)
    assert opened(path, tmp_path).fingerprint not in (bare, dataset.fingerprint)


@per_overlaid_format
def test_a_shard_of_no_records_has_overlays_too(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    paths = [written(fmt, tmp_path, table.slice(0, n), f"s{n}") for n in (0, 3)]
    overlay(opened(paths, tmp_path), NEW.slice(0, 3))  # type: ignore[arg-type]
    same(whole(opened(paths, tmp_path)), overlaid(table, NEW).slice(0, 3))  # type: ignore[arg-type]
    empty = opened(paths[0], tmp_path, schema=overlaid(table, NEW).schema)
    assert len(empty) == 0
    assert sum(batch.num_rows for batch in empty.scan()) == 0


@per_overlaid_format
def test_the_same_values_make_the_same_bytes(fmt: Format, tmp_path: Path) -> None:
    table = table_of(fmt)
    path = written(fmt, tmp_path, table)
    kept: set[bytes] = set()
    for length in (1, 700, 5000):
        batches = NEW.to_batches(max_chunksize=length)
        dataset = opened(path, tmp_path, overlays=False)
        write_overlay(dataset, "new", NEW.schema, lambda shard, b=batches: b)
        kept.add((Path(folder_of(path)) / "new.overlay").read_bytes())
        ps.remove_overlay(path, "new")
    assert len(kept) == 1
