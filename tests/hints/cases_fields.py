"""Hints about fields, and about batches of records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from steps import IMAGES, Case, Cases, apart, cli, folder_of_images, rows

import penstock as ps
from penstock.verbs.fields.rewrite_journal import Journal

# -- fields ---------------------------------------------------------------------------------------


def broken_overlay() -> Case:
    ps.write({"a": [1, 2]}, "a.parquet")
    ps.add_fields("a.parquet", {"b": [10, 20]})
    (overlay,) = Path(".a.parquet.penstock-fields").iterdir()
    good = overlay.read_bytes()

    def broken() -> None:
        data = bytearray(good)
        data[data.index((10).to_bytes(8, "little"))] ^= 1
        overlay.write_bytes(data)
        rows("a.parquet")

    def advised() -> None:
        overlay.write_bytes(good)
        assert rows("a.parquet") == [{"a": 1, "b": 10}, {"a": 2, "b": 20}]
        cli("fields remove a.parquet b")
        assert rows("a.parquet") == [{"a": 1}, {"a": 2}]

    return Case(broken, advised, "penstock fields remove SOURCE NAME, or put back the file")


def a_null_without_a_type() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")

    def advised() -> None:
        ps.add_fields("a.tfrecord", {"b": pa.scalar(None, pa.string())})
        ps.write({"c": pa.array([None, "x"], pa.string())}, "c.parquet")
        cli("fields add a.tfrecord --from c.parquet")
        assert rows("a.tfrecord") == [{"a": 1, "b": None, "c": None}, {"a": 2, "b": None, "c": "x"}]

    return Case(lambda: ps.add_fields("a.tfrecord", {"b": None}), advised)


def late_field_to_drop() -> Case:
    for name, data in (("p", {"a": [1] * 1001}), ("q", {"a": [2], "late": [7]})):
        ps.write(data, f"{name}.tfrecord", index=False)
    Path("a.tfrecord").write_bytes(
        Path("p.tfrecord").read_bytes() + Path("q.tfrecord").read_bytes()
    )

    def advised() -> None:
        seen = ps.open("a.tfrecord", infer_records="all")
        assert seen[1001] == {"a": 2, "late": 7}
        ps.drop_fields(seen, ["late"], into="b.tfrecord")
        assert ps.open("b.tfrecord", infer_records="all").schema.names == ["a"]
        assert rows("b.tfrecord")[-1] == {"a": 2}

    return Case(lambda: ps.drop_fields("a.tfrecord", ["late"], into="c.tfrecord"), advised)


def late_field_to_add() -> Case:
    ps.write({"a": [1] * 1001}, "p.tfrecord", index=False)
    ps.write({"a": [2], "b": [7]}, "q.tfrecord", index=False)
    Path("a.tfrecord").write_bytes(
        Path("p.tfrecord").read_bytes() + Path("q.tfrecord").read_bytes()
    )
    new = {"b": np.arange(1002)}

    def advised() -> None:
        ps.add_fields("a.tfrecord", new, replace=True, into="b.tfrecord")
        assert [record["b"] for record in rows("b.tfrecord")] == list(range(1002))

    return Case(lambda: ps.add_fields("a.tfrecord", new, into="c.tfrecord"), advised)


def killed_and_changed(again: Callable[[Path, Path], None]) -> Case:
    """A change in place that was killed after its first file, and whose second file has changed since."""
    paths = list(ps.write({"a": range(4)}, "a.tfrecord", num_shards=2).paths)

    def job() -> None:
        ps.replace_fields(paths, {"a": 7}, in_place=True)

    class Killed(BaseException):
        pass

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        finished = Journal.finish

        def then_die(*given: Any) -> None:
            finished(*given)
            raise Killed

        patch.setattr(Journal, "finish", then_die)
        job()
    second = Path(paths[1])
    ps.write({"a": [5, 6]}, "other.tfrecord", index=False)
    second.rename("kept.tfrecord")
    Path("other.tfrecord").rename(second)
    found: dict[str, str] = {}

    def fails() -> None:
        try:
            job()
        except ps.ChangedError as error:
            found["hint"] = str(error.hint)
            raise

    def advised() -> None:
        journal = Path(found["hint"].split("delete ")[1].split(" to start")[0])
        again(journal, second)
        job()
        assert [record["a"] for record in rows(paths)] == [7] * 4
        assert not journal.exists()

    return Case(fails, advised)


def moved_back() -> Case:
    def back(_: Path, second: Path) -> None:
        Path("kept.tfrecord").rename(second)

    return killed_and_changed(back)


def begun_anew() -> Case:
    def deleted(journal: Path, _: Path) -> None:
        journal.unlink()

    return killed_and_changed(deleted)


SEQUENCE = {"context_a": [1, 2], "feature_lists/b": [[3], [4, 5]]}


def sequences(schema: Any) -> list[Any]:
    if not Path("a.tfrecord").exists():
        ps.write(SEQUENCE, "a.tfrecord", payload="sequence", index=False)
    return rows("a.tfrecord", schema=schema)


def list_as_a_feature() -> Case:
    many = ps.features.FixedLenSequence([], "int64")

    def advised() -> None:
        found = sequences({"feature_lists/b": ps.features.Sequence(many)})
        assert [list(record["feature_lists/b"]) for record in found] == [[3], [4, 5]]

    hint = "penstock.features.Sequence(...)"
    wrong = {"feature_lists/b": many}
    return Case(lambda: sequences(wrong), advised, hint)


def feature_as_a_list() -> Case:
    many = ps.features.VarLen("int64")

    def advised() -> None:
        found = sequences({"context/context_a": many})
        assert [list(record["context/context_a"]) for record in found] == [[1], [2]]

    hint = "the feature within the Sequence"
    wrong = {"context/context_a": ps.features.Sequence(many)}
    return Case(lambda: sequences(wrong), advised, hint)


def typed(**fields: pa.DataType) -> pa.Schema:
    return pa.schema([(name.replace("__", "/"), type_) for name, type_ in fields.items()])


def feature_read_as_lists() -> Case:
    lists = pa.list_(pa.list_(pa.int64()))

    def advised() -> None:
        found = sequences(typed(context_a=pa.list_(pa.int64())))
        assert [list(record["context_a"]) for record in found] == [[1], [2]]
        found = sequences(typed(context__context_a=pa.int64()))
        assert found == [{"context/context_a": 1}, {"context/context_a": 2}]

    hint = "a list of values, or the name 'context/context_a'"
    return Case(lambda: sequences(typed(context_a=lists)), advised, hint)


def lists_read_as_a_feature() -> Case:
    def advised() -> None:
        lists = [[[3]], [[4], [5]]]
        found = sequences(typed(b=pa.list_(pa.list_(pa.int64()))))
        assert [[list(frame) for frame in record["b"]] for record in found] == lists
        within = ps.features.Sequence(ps.features.VarLen("int64"))
        found = sequences({"b": within})
        assert [[list(frame) for frame in record["b"]] for record in found] == lists
        found = sequences(typed(feature_lists__b=pa.list_(pa.int64())))
        assert [list(record["feature_lists/b"]) for record in found] == [[3], [4, 5]]

    hint = (
        "a list of lists, penstock.features.Sequence(...), or the name 'feature_lists/b', which may be a "
        "list of values if each frame has one"
    )
    return Case(lambda: sequences(typed(b=pa.list_(pa.int64()))), advised, hint)


# -- batches --------------------------------------------------------------------------------------


def nested_labels() -> Case:
    kind = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    batches = [pa.record_batch({"w": pa.array([[w]], kind)}) for w in ("a", "b")]

    def advised() -> None:
        ps.write(iter(batches), "b.arrow", batch_records=1, stream=True)
        assert [list(record["w"]) for record in rows("b.arrow")] == [["a"], ["b"]]
        one = pa.Table.from_batches(batches).unify_dictionaries()
        ps.write(one, "c.arrow", batch_records=1)
        assert [list(record["w"]) for record in rows("c.arrow")] == [["a"], ["b"]]

    return Case(lambda: ps.write(iter(batches), "a.arrow", batch_records=1), advised)


def late_key() -> Case:
    items = [{"a": "x" * 1000}] * 100_000
    late = {"a": "y", "b": 1}

    def given() -> Any:
        yield from items
        yield late

    def advised() -> None:
        schema = pa.schema([("a", pa.string()), ("b", pa.int64())])
        made = [pa.RecordBatch.from_pylist(one, schema) for one in (items[:2], [late])]
        ps.write(iter(made), "b.arrow")
        assert rows("b.arrow")[-1] == late

    return Case(lambda: ps.write(given(), "a.arrow"), advised)


def other_type_appended() -> Case:
    ps.write({"a": [1]}, "a.tfrecord")

    def advised() -> None:
        assert "int64" in cli("schema a.tfrecord")
        ps.append({"a": [2]}, "a.tfrecord")
        assert rows("a.tfrecord") == [{"a": 1}, {"a": 2}]

    return Case(
        lambda: ps.append({"a": [0.5]}, "a.tfrecord"), advised, "penstock schema a.tfrecord"
    )


def large_batch() -> Case:
    folder_of_images(csv="file_name\n0.png\n1.png\n")
    size = max(map(len, IMAGES.values()))
    wanted = list(IMAGES.values())

    def images(batches: Any) -> list[bytes]:
        return [one for batch in batches for one in batch.column("image").to_pylist()]

    def advised() -> None:
        ds = ps.open("d", limits={"batch_bytes": size + 9})
        assert images(ds.scan(batch_records=1)) == wanted
        assert images([ds.take([0]), ds.take([1])]) == wanted
        more = ps.open("d", limits={"batch_bytes": 2 * size + 9})
        assert images([more.take([0, 1])]) == wanted

    hint = (
        "fewer records at once: a smaller batch_size, batch_records or take; or "
        "open(..., limits={'batch_bytes': ...})"
    )
    return Case(lambda: ps.open("d", limits={"batch_bytes": size + 9}).take([0, 1]), advised, hint)


LARGE = """
import resource
import penstock.tf as tf

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
feature = tf.io.FixedLenFeature([1 << 20], "int64", default_value=[7] * (1 << 20))

def parse(some):
    return tf.io.parse_example(some, {"a": feature})["a"].numpy()

def fails():
    parse([b""] * 3000)  # 24 GB

def advised():
    assert parse([b""] * 2).tolist() == [[7] * (1 << 20)] * 2
"""


def more_than_memory() -> Case:
    return apart(LARGE)


def other_csv() -> Case:
    ps.write({"id": [1, 2]}, "a.tfrecord")
    Path("a.csv").write_text("id;score\n1;10\n2;20\n3\n")

    def advised() -> None:
        parse = csv.ParseOptions(delimiter=";", invalid_row_handler=lambda row: "skip")
        table = csv.read_csv("a.csv", parse_options=parse)
        ps.add_fields("a.tfrecord", table, by="id")
        assert rows("a.tfrecord") == [{"id": 1, "score": 10}, {"id": 2, "score": 20}]

    Path("b.csv").write_text("id,score\n1,10\n2\n")
    return Case(lambda: ps.add_fields("a.tfrecord", "b.csv", by="id"), advised)


CASES: Cases = {
    "'pa.scalar(None, pa.string()) is a null with a type; penstock fields add SOURCE --from TABLE takes the types of a table'": a_null_without_a_type,
    "'give the values as a table: pyarrow.csv.read_csv has options for other kinds of CSV'": other_csv,
    "'parse fewer records at once'": more_than_memory,
    "self._hint": broken_overlay,
    "'open(..., infer_records=\"all\") also finds fields that only later records have'": late_field_to_drop,
    "'replace=True replaces the old values with the new values'": late_field_to_add,
    "f'move the original file back (a copy does not count), or delete {self._path} to start again with the current files'": (
        moved_back,
        begun_anew,
    ),
    "'penstock.features.Sequence(...)' if in_lists else 'the feature within the Sequence'": (
        list_as_a_feature,
        feature_as_a_list,
    ),
    "f'a list of values, or the name {prefix + name!r}'": feature_read_as_lists,
    "f'a list of lists, penstock.features.Sequence(...), or the name {prefix + name!r}, which may be a list of values if each frame has one'": (
        lists_read_as_a_feature
    ),
    "'stream=True, or one dictionary for all batches'": nested_labels,
    "'the columns and types are inferred from the first records; to choose them, write record batches, such as pa.RecordBatch.from_pylist(rows, schema)'": (
        late_key
    ),
    "command('penstock', 'schema', path)": other_type_appended,
    "f\"{error.hint}; or {raise_limit('batch_bytes', ...)}\"": large_batch,
}
