"""Hints about columns: folders of images and their tables, loaders, and types that a format lacks."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
import h5py
import numpy as np
import pyarrow as pa
import pytest
from steps import Case, Cases, rows

import penstock as ps
from penstock.storage import MemoryStorage

TWO = [{"a": 1}, {"a": 2}]


def without_module(name: str, call: Callable[[], Any]) -> Callable[[], Any]:
    """A call while a library is not installed."""

    def hidden() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            return call()

    return hidden


def installed_by(extra: str) -> list[str]:
    """The libraries that `pip install 'penstock[extra]'` installs."""
    wanted = importlib.metadata.requires("penstock") or []
    return [line.split(">")[0] for line in wanted if line.endswith(f"extra == '{extra}'")]


def hdf5_without_h5py() -> Case:
    with h5py.File("a.h5", "w") as file:
        file["a"] = [1, 2]

    def installed() -> None:
        assert installed_by("hdf5") == ["h5py"]
        assert rows("a.h5") == TWO

    return Case(without_module("h5py", lambda: ps.open("a.h5")), installed)


def cbor_without_cbor2() -> Case:
    ps.write({"cbor": [cbor2.dumps({"a": 1})]}, "a.tar")
    schema = pa.schema([("cbor", pa.struct([("a", pa.int64())]))])

    def read() -> Any:
        return rows("a.tar", schema=schema)

    def installed() -> None:
        assert installed_by("webdataset") == ["cbor2"]
        assert read() == [{"cbor": {"a": 1}}]

    return Case(without_module("cbor2", read), installed)


# -- folders of images ----------------------------------------------------------------------------


def images() -> list[bytes]:
    """Two images."""
    return list(ps.encode_images(np.zeros((2, 8, 8, 3), np.uint8), "png").to_pylist())


def structs_in_a_table() -> Case:
    data = {"image": images(), "tag": [{"x": 1}, {"x": 2}]}

    def in_parquet() -> None:
        ps.write(data, "pets", format="imagefolder", table="parquet")
        assert [row["tag"] for row in rows("pets")] == data["tag"]

    return Case(lambda: ps.write(data, "pets", format="imagefolder", table="csv"), in_parquet)


def _with_table(text: str) -> Callable[..., list[Any]]:
    ps.write({"image": images()}, "pets", format="imagefolder")
    Path("pets/metadata.jsonl").write_text(text)
    return lambda **options: rows("pets", **options)


NAMELESS = '{"x": 1}\n{"x": 2}\n'
FORMS = (
    "use an array of objects, or one object per line, each with file_name; "
    'or open(..., table="", other_files="ignore"), which reads no table'
)


def _named_table(text: str) -> Case:
    read = _with_table(NAMELESS)

    def named() -> None:
        Path("pets/metadata.jsonl").write_text(text)
        assert [row["x"] for row in read()] == [1, 2]

    return Case(read, named, FORMS)


def objects_without_names_in_lines() -> Case:
    first, second = '{"file_name": "00000000.png", "x": 1}', '{"file_name": "00000001.png", "x": 2}'
    return _named_table(f"{first}\n{second}\n")


def objects_without_names_in_an_array() -> Case:
    first, second = '{"file_name": "00000000.png", "x": 1}', '{"file_name": "00000001.png", "x": 2}'
    return _named_table(f"[{first}, {second}]")


def a_table_that_is_not_read() -> Case:
    read = _with_table(NAMELESS)

    def unread() -> None:
        assert [row["image"] for row in read(table="", other_files="ignore")] == images()

    return Case(read, unread, FORMS)


def two_tables() -> Case:
    read = _with_table('{"file_name": "00000000.png", "x": 1}\n')
    Path("pets/metadata.csv").write_text("file_name,x\n00000000.png,5\n00000001.png,6\n")

    def one() -> None:
        found = read(table="metadata.csv", other_files="ignore")
        assert [row["x"] for row in found] == [5, 6]

    return Case(read, one, "open(..., table='metadata.csv', other_files=\"ignore\")")


# -- files of several types, and loaders ----------------------------------------------------------


def floats_that_would_be_rounded() -> Case:
    ps.write(pa.table({"a": pa.array([1], pa.float32()), "b": [1]}), "0.parquet")
    ps.write({"a": [0.1], "b": [2]}, "1.parquet")

    wanted = [{"a": 1.0, "b": 1}, {"a": 0.1, "b": 2}]

    def with_the_type() -> None:
        schema = pa.schema([("a", pa.float64()), ("b", pa.int64())])
        assert rows("*.parquet", schema=schema) == wanted
        assert rows("*.parquet", types={"a": "double"}) == wanted

    hint = "open(..., types={'a': 'double'}), or schema= with this type"
    return Case(lambda: rows("*.parquet"), with_the_type, hint)


def _two_types() -> Callable[..., list[Any]]:
    ps.write({"a": [1], "b": [1]}, "0.parquet")
    ps.write({"a": [0.1], "b": [2]}, "1.parquet")

    def load(schema: Any = None, columns: Any = None) -> list[Any]:
        sets = [ps.open(path, schema=schema) for path in ("0.parquet", "1.parquet")]
        (batch,) = ps.Loader(sets, 2, columns=columns)
        return {name: column.tolist() for name, column in batch.items()}

    return load


def sets_of_two_types() -> Case:
    load = _two_types()

    def with_schema() -> None:
        schema = pa.schema([("a", pa.float64()), ("b", pa.int64())])
        assert load(schema) == {"a": [1, 0.1], "b": [1, 2]}

    return Case(load, with_schema, "schema= of open, or columns= without it")


def sets_of_two_types_without_it() -> Case:
    load = _two_types()

    def without() -> None:
        assert load(columns=["b"]) == {"b": [1, 2]}

    return Case(load, without, "schema= of open, or columns= without it")


NAMES = pa.array(["eel", "cat"]).dictionary_encode()


def names_and_numbers() -> Case:
    ps.write({"my label": NAMES}, "a.parquet")
    ps.write({"my label": [1, 0]}, "b.parquet")

    def load(**columns: str) -> Any:
        other = ps.open("b.parquet")
        other = other.with_columns(columns) if columns else other
        (batch,) = ps.Loader([ps.open("a.parquet"), other], 4)
        return batch["my label"].tolist()

    def advised() -> None:
        assert load(**{"my label": 'lookup(`my label`, ["cat", "dog"])'}) == [0, 1, 2, 1]

    hint = """ds.with_columns({'my label': 'lookup(`my label`, ["name of 0", "name of 1"])'}) where it has numbers"""
    return Case(load, advised, hint)


def names_and_bytes() -> Case:
    ps.write({"label": NAMES}, "a.parquet")
    ps.write({"label": [b"cat", b"dog"]}, "b.tfrecord")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader([ps.open("a.parquet"), ps.open("b.tfrecord", **options)], 4)
        return batch["label"].tolist()

    def advised() -> None:
        assert load(types={"label": "string"}) == [0, 1, 1, 2]

    return Case(load, advised, "open(..., types={'label': 'string'}) where it has bytes")


def class_names_of_numbers() -> Case:
    ps.write({"label": [1, 0]}, "a.parquet")
    ds = ps.open("a.parquet")

    def load(ds: ps.Dataset) -> Any:
        (batch,) = ps.Loader(ds, 4, class_names={"label": ["dog", "cat", "eel"]})
        return batch["label"].tolist()

    def advised() -> None:
        assert load(ds.with_columns({"label": 'lookup(label, ["cat", "dog"])'})) == [0, 1]

    hint = """ds.with_columns({'label': 'lookup(label, ["name of 0", "name of 1"])'})"""
    return Case(lambda: load(ds), advised, hint)


def lengths_of_one_level() -> Case:
    ps.write({"a": [[[1], [2, 3]], [[4]]]}, "a.parquet")

    def load(lengths: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, pad_to={"a": lengths})
        return batch["a"].tolist()

    def of_two() -> None:
        assert load((2, 2)) == [[[1, 0], [2, 3]], [[4, 0], [0, 0]]]

    return Case(lambda: load(3), of_two, "pad_to={'a': (length, length)}")


def made_lists_in_lists() -> Case:
    ps.write({"id": [0, 1]}, "a.parquet")

    def load(lengths: Any) -> Any:
        made = {"map_records": lambda _: {"a": [[1], [2, 3]]}, "pad_to": {"a": lengths}}
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, **made)
        return batch["a"].tolist()

    def of_two() -> None:
        assert load((2, 2)) == [[[1, 0], [2, 3]]] * 2

    return Case(lambda: load(3), of_two, "pad_to={'a': (length, length)}")


LABELS = pa.schema([("label", pa.dictionary(pa.int32(), pa.string())), ("x", pa.int64())])


def _labels(**options: Any) -> Callable[..., dict[str, Any]]:
    ps.write({"label": ["a", "b"], "x": [1, 2]}, "a.tfrecord", index=False, overwrite=True)

    def load(**given: Any) -> dict[str, Any]:
        data = ps.open("a.tfrecord", schema=LABELS, index="never", **options)
        (batch,) = ps.Loader(data, 2, **given)
        return {name: column.tolist() for name, column in batch.items()}

    return load


def a_class_without_a_name() -> Case:
    load = _labels()

    def with_all() -> None:
        assert load(class_names={"label": ["b", "a"]}) == {"label": [1, 0], "x": [1, 2]}

    return Case(lambda: load(class_names={"label": ["a"]}), with_all)


def _elsewhere() -> Callable[..., dict[str, Any]]:
    _labels()
    return _labels(storage=MemoryStorage({"a.tfrecord": Path("a.tfrecord").read_bytes()}))


def classes_of_another_machine() -> Case:
    load = _elsewhere()

    def named() -> None:
        assert load(class_names={"label": ["a", "b"]}) == {"label": [0, 1], "x": [1, 2]}

    return Case(load, named)


def classes_of_another_machine_left_out() -> Case:
    load = _elsewhere()

    def without() -> None:
        assert load(columns=["x"]) == {"x": [1, 2]}

    return Case(load, without)


# -- types ----------------------------------------------------------------------------------------


def a_type_that_no_example_has() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord", index=False)
    schema = pa.schema([("a", pa.decimal128(5, 2))])

    def cast() -> None:
        (batch,) = ps.open("a.tfrecord", schema=pa.schema([("a", pa.int64())])).scan()
        found = batch["a"].cast(pa.decimal128(21, 2)).cast(pa.decimal128(5, 2))
        assert [int(value) for value in found.to_pylist()] == [1, 2]

    return Case(lambda: ps.open("a.tfrecord", schema=schema), cast)


def _labelled() -> pa.Table:
    chunks = [pa.array([name]).dictionary_encode() for name in ("a", "b")]
    return pa.table({"label": pa.chunked_array(chunks), "image": [b"1", b"2"]})


def _unified(target: str) -> Case:
    def together() -> None:
        labels = _labelled().unify_dictionaries()
        ps.write(labels, target)
        assert [row["label"] for row in rows(target)] == ["a", "b"]

    return Case(lambda: ps.write(_labelled(), target), together)


def labels_of_beton() -> Case:
    return _unified("a.beton")


def labels_of_recordio() -> Case:
    return _unified("a.rec")


def labels_of_recordio_as_numbers() -> Case:
    def numbers() -> None:
        table = _labelled().set_column(0, "label", pa.array([0, 1]))
        ps.write(table, "a.rec")
        assert [row["label"] for row in rows("a.rec")] == [0, 1]

    return Case(lambda: ps.write(_labelled(), "a.rec"), numbers)


def columns_that_recordio_lacks() -> Case:
    ps.write({"label": [3.0], "image": [b"x"]}, "a.rec")
    numbers = {"label": pa.float32(), "id": pa.uint64(), "id2": pa.uint64()}

    def of_recordio() -> None:
        whole = pa.schema([*numbers.items(), ("image", pa.binary())])
        assert rows("a.rec", schema=whole) == [{"label": 3, "id": 0, "id2": 0, "image": b"x"}]
        for name in ("data", "record"):
            schema = pa.schema([(name, pa.binary())])
            (row,) = rows("a.rec", schema=schema, header=False)
            assert row[name].endswith(b"x")

    wrong = pa.schema([("label", pa.float32()), ("data", pa.binary())])
    return Case(lambda: ps.open("a.rec", schema=wrong), of_recordio)


CASES: Cases = {
    "f'pad_to={{{name!r}: {lengths_for(len(levels))}}}'": made_lists_in_lists,
    "\"pip install 'penstock[hdf5]'\"": hdf5_without_h5py,
    "\"pip install 'penstock[webdataset]'\"": cbor_without_cbor2,
    "'write(..., table=\"parquet\")'": structs_in_a_table,
    "FORMS if _kind(path) == 'json' else None": (
        objects_without_names_in_lines,
        objects_without_names_in_an_array,
        a_table_that_is_not_read,
    ),
    "f'open(..., table={found[0]!r}, other_files=\"ignore\")'": two_tables,
    "f\"open(..., types={{{field.name!r}: '{_innermost(own.type)}'}}), or schema= with this type\"": (
        floats_that_would_be_rounded
    ),
    "_one_kind_of_label(first.name, types) or 'schema= of open, or columns= without it'": (
        sets_of_two_types,
        sets_of_two_types_without_it,
        names_and_numbers,
        names_and_bytes,
    ),
    "names_of_numbers(path) if pa.types.is_integer(types[path]) else None": class_names_of_numbers,
    "f\"pad_to={{{', '.join(each)}}}\"": lengths_of_one_level,
    "f'class_names={{{path!r}: [...]}} with all names'": a_class_without_a_name,
    "f'class_names={{{path!r}: [...]}}, or columns= without it'": (
        classes_of_another_machine,
        classes_of_another_machine_left_out,
    ),
    "'read it as one of those and cast afterwards'": a_type_that_no_example_has,
    "'unify the dictionaries first (pyarrow.Table.unify_dictionaries)'": labels_of_beton,
    "'call unify_dictionaries() of a pyarrow.Table, or write labels as numbers'": (
        labels_of_recordio,
        labels_of_recordio_as_numbers,
    ),
    "f'use {listed}'": columns_that_recordio_lacks,
}
