"""Overlays that drop, rename and replace fields. After any changes, the dataset equals a table changed alike."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from overlaying import folder_of

COUNT = 12
NAMES = ["a", "b", "c", "d", "e"]
Table = dict[str, list[Any]]


@st.composite
def steps(draw: st.DrawFn) -> list[Callable[[Table, str | None], Table]]:
    """A list of changes of fields. Each returns the changed table and, if it gets a path, adds an overlay there."""
    chain: list[Callable[[Table, str | None], Table]] = []
    for number in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["add", "replace", "where", "drop", "rename", "swap"]))
        chain.append(_step(kind, number, draw(st.integers(0, 9)), draw(st.integers(0, 9))))
    return chain


def _step(kind: str, number: int, first: int, second: int) -> Callable[..., Table]:
    values = [100 * (number + 1) + n for n in range(COUNT)]

    def change(table: Table, path: str | None) -> Table:
        known, free = list(table), [name for name in NAMES if name not in table]
        old, other = known[first % len(known)], known[second % len(known)]
        if kind == "add" and free:
            new = free[second % len(free)]
            if path:
                ps.add_fields(path, {new: values})
            return {**table, new: values}
        if kind == "replace":
            if path:
                ps.replace_fields(path, {old: values})
            return {**table, old: values}
        if kind == "where":
            if path:
                ps.replace_fields(path, {old: values}, where=f"{other} % 2 == 0")
            rows = zip(table[other], values, table[old], strict=True)
            return {**table, old: [new if not by % 2 else was for by, new, was in rows]}
        if kind == "drop" and len(known) > 1:
            if path:
                ps.drop_fields(path, old)
            return {name: column for name, column in table.items() if name != old}
        renames = (
            {old: other, other: old} if kind == "swap" else dict(zip([old], free, strict=False))
        )
        if kind in ("rename", "swap") and renames:
            if path:
                ps.rename_fields(path, renames)
            return {renames.get(name, name): column for name, column in table.items()}
        return table

    return change


@settings(max_examples=40, deadline=None)
@given(steps(), st.sampled_from(["tfrecord", "parquet", "msgpack"]), st.sampled_from([1, 2]))
def test_a_chain_of_changes_shows_what_it_makes_of_a_table(
    chain: list[Callable[[Table, str | None], Table]], ext: str, num_shards: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table: Table = {"a": list(range(COUNT)), "b": list(range(7, COUNT + 7)), "c": [3] * COUNT}
        made = ps.write(table, Path(folder, f"x.{ext}"), num_shards=num_shards)
        source = Path(folder, f"x*.{ext}")
        before = [Path(path).read_bytes() for path in made.paths]
        for change in chain:
            table = change(table, str(source))
        _check(source, table)
        assert [Path(path).read_bytes() for path in made.paths] == before
        _check_verbs(source, table, Path(folder))


def _check(source: Path, table: Table) -> None:
    ds = ps.open(source)
    assert ds.schema.names == list(table)
    assert ds.to_table().to_pydict() == table
    assert ds.take([7, 2, 7]).to_pydict() == {n: [c[7], c[2], c[7]] for n, c in table.items()}
    assert ds[5] == {name: column[5] for name, column in table.items()}
    last = list(table)[-1]
    found = ds.to_table(columns=[last], where=f"{last} >= 9").column(last).to_pylist()
    assert found == [value for value in table[last] if value >= 9]
    asked = pa.schema([(name, pa.int32()) for name in reversed(table)])
    assert ps.open(source, schema=asked).to_table().to_pydict() == {
        name: table[name] for name in reversed(table)
    }


def _check_verbs(source: Path, table: Table, folder: Path) -> None:
    assert ps.verify(source).ok
    (batch,) = ps.Loader(ps.open(source), COUNT)
    assert {name: column.tolist() for name, column in batch.items()} == table
    ps.convert(source, folder / "copy.arrow", prove=True)
    assert ps.open(folder / "copy.arrow").to_table().to_pydict() == table
    if not ps.overlays(source):
        return
    ps.bake_fields(source, into=folder / "baked", verify=True)
    baked = ps.open(folder / "baked").to_table()
    assert {name: baked.column(name).to_pylist() for name in baked.column_names} == table
    ps.bake_fields(source, in_place=True)
    assert ps.overlays(source) == []
    assert ps.diff(source, folder / "baked").equal


# -- single cases ---------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> str:
    ps.write({"id": range(COUNT), "label": range(20, 20 + COUNT)}, tmp_path / "a.tfrecord")
    return str(tmp_path / "a.tfrecord")


def test_removing_a_change_shows_the_fields_as_they_were_before_it(path: str) -> None:
    ps.drop_fields(path, ["label"])
    ps.rename_fields(path, {"id": "key"})
    assert [overlay.name for overlay in ps.overlays(path)] == ["drop-label", "rename-id"]
    assert ps.open(path).schema.names == ["key"]
    ps.remove_overlay(path, "drop-label")
    assert ps.open(path).schema.names == ["key", "label"]
    ps.remove_overlay(path, "rename-id")
    assert ps.open(path).schema.names == ["id", "label"]


def test_a_list_of_overlays_names_dropped_and_renamed_fields(path: str) -> None:
    ps.drop_fields(path, ["label"])
    ps.rename_fields(path, {"id": "key"})
    dropped, renamed = ps.overlays(path)
    assert (dropped.dropped, dropped.renamed, len(dropped.fields)) == (("label",), (), 0)
    assert (renamed.dropped, renamed.renamed) == ((), (("id", "key"),))


def test_the_same_change_after_other_changes_gets_another_name(path: str) -> None:
    for label in (1, 2):
        ps.drop_fields(path, "label")
        ps.add_fields(path, {"label": label})
    names = ["drop-label", "label", "drop-label-2", "label-2"]
    assert [overlay.name for overlay in ps.overlays(path)] == names
    assert ps.open(path)[0] == {"id": 0, "label": 2}


def test_names_that_do_not_exist_or_exist_already_are_errors(path: str) -> None:
    ps.add_fields(path, {"score": 1})
    ps.rename_fields(path, {"score": "rank"})
    with pytest.raises(ps.SchemaError, match="no such field; there are: id, label, rank"):
        ps.drop_fields(path, "score")
    with pytest.raises(ps.SchemaError, match="no such field"):
        ps.rename_fields(path, {"score": "points"})
    with pytest.raises(ps.SchemaError, match="already have this field") as raised:
        ps.rename_fields(path, {"rank": "label"})
    assert raised.value.field == "label"
    with pytest.raises(ps.SchemaError, match="no such field"):
        ps.replace_fields(path, {"score": 2})
    with pytest.raises(ps.SchemaError, match="already have this field"):
        ps.add_fields(path, {"rank": 2})
    assert len(ps.overlays(path)) == 2


def test_a_schema_cannot_ask_for_a_field_that_was_dropped(path: str) -> None:
    ps.drop_fields(path, "label")
    with pytest.raises(ps.SchemaError, match="an overlay dropped or renamed this field") as raised:
        ps.open(path, schema=pa.schema([("label", pa.int64())]))
    assert raised.value.field == "label"
    for schema in (
        {"id": ps.features.FixedLen((), "int64")},
        pa.schema([("id", pa.int16())]),
    ):
        assert ps.open(path, schema=schema)[3] == {"id": 3}
    with pytest.raises(ps.SchemaError, match="dropped or renamed"):
        ps.open(path, schema={"label": ps.features.FixedLen((), "int64")})


def test_descriptions_of_features_use_the_new_names(path: str) -> None:
    ps.rename_fields(path, {"id": "label", "label": "id"})
    ds = ps.open(path, schema={"label": ps.features.FixedLen((), "int64")})
    assert ds[3] == {"label": 3}


def test_types_may_be_said_for_renamed_fields(path: str) -> None:
    ps.rename_fields(path, {"id": "key"})
    assert ps.open(path, types={"key": "int8"}).schema.field("key").type == pa.int8()


def test_class_names_belong_to_the_field_and_not_to_its_old_name(tmp_path: Path) -> None:
    labels = pa.array(["cat", "dog", "cat"]).dictionary_encode()
    others = pa.array(["x", "x", "y"]).dictionary_encode()
    ps.write({"label": labels, "other": others}, tmp_path / "a.tfrecord")
    ps.rename_fields(tmp_path / "a.tfrecord", {"label": "other", "other": "label"})
    loader = ps.Loader(ps.open(tmp_path / "a.tfrecord"), 3)
    (batch,) = loader
    assert loader.class_names == {"other": ["cat", "dog"], "label": ["x", "y"]}
    assert batch["label"].tolist() == [0, 0, 1]


def test_statistics_of_a_renamed_column_still_skip_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ps.write({"a": range(1000), "b": [0] * 1000}, path, row_group_records=100)
    ps.rename_fields(path, {"a": "b", "b": "a"})
    assert ps.open(path).count("b >= 950") == 50
    assert ps.open(path).count("a == 0") == 1000


def test_a_change_of_some_files_only_is_refused_until_it_is_removed(tmp_path: Path) -> None:
    ps.write({"id": range(30)}, tmp_path / "a.tfrecord", num_shards=3)
    ps.rename_fields(tmp_path / "a*", {"id": "key"})
    paths = ps.open(tmp_path).paths
    ps.remove_overlay(paths[1], "rename-id")  # as after a killed call
    with pytest.raises(ps.SchemaError, match="but not in all files") as raised:
        ps.open(tmp_path)
    assert raised.value.file == paths[0]
    assert ps.open(paths[0]).schema.names == ["key"]
    assert ps.open(tmp_path, overlays=False).schema.names == ["id"]
    ps.remove_overlay(tmp_path, "rename-id")
    ps.rename_fields(tmp_path, {"id": "key"})
    assert ps.open(tmp_path)[29] == {"key": 29}


def test_values_are_not_computed_twice_after_an_interrupted_call(tmp_path: Path) -> None:
    ps.write({"id": range(30), "n": [1] * 30}, tmp_path / "a.tfrecord", num_shards=3)
    paths = ps.open(tmp_path).paths

    def doubled(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        return {"n": 2 * batch.column("n").to_numpy()}

    ps.replace_fields(paths[:2], doubled, reads=["n"])
    with pytest.raises(ps.UnsupportedError, match="2 of 3 files have"):
        ps.replace_fields(tmp_path, doubled, reads=["n"])
    ps.replace_fields(paths[2:], doubled, reads=["n"])
    assert set(ps.open(tmp_path).to_table().column("n").to_pylist()) == {2}
    ps.replace_fields(tmp_path, doubled, reads=["n"])
    assert set(ps.open(tmp_path).to_table().column("n").to_pylist()) == {4}


def test_a_file_without_an_added_field_keeps_its_own_under_the_new_name(tmp_path: Path) -> None:
    ps.write({"id": range(20)}, tmp_path / "a.tfrecord", num_shards=2)
    paths = ps.open(tmp_path).paths
    ps.replace_fields(paths[1], {"id": 7})
    ps.rename_fields(tmp_path, {"id": "key"})
    assert ps.open(tmp_path).to_table().column("key").to_pylist() == [*range(10), *[7] * 10]
    ps.bake_fields(tmp_path, in_place=True)
    assert ps.open(tmp_path).to_table().column("key").to_pylist() == [*range(10), *[7] * 10]


def test_a_file_that_lacks_a_field_has_nulls_also_if_its_others_are_renamed(tmp_path: Path) -> None:
    ps.write({"a": range(2000), "c": range(2000)}, tmp_path / "x-0.tfrecord")
    ps.write({"a": range(5)}, tmp_path / "x-1.tfrecord")
    ps.rename_fields(tmp_path, {"a": "b"})
    table = ps.open(tmp_path).to_table().slice(1999)
    assert table.to_pydict() == {"b": [1999, 0, 1, 2, 3, 4], "c": [1999, *[None] * 5]}


def test_a_change_without_values_takes_a_few_hundred_bytes(path: str) -> None:
    ps.drop_fields(path, "label")
    (kept,) = Path(folder_of(path)).iterdir()
    assert kept.stat().st_size < 1000
