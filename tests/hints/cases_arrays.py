"""Hints about npy and npz, and about numbers that Arrow has no type for."""

from __future__ import annotations

import h5py
import ml_dtypes
import numpy as np
import pyarrow as pa
from steps import Case, Cases, equal_in, rows, twice

import penstock as ps
from penstock.columns.types import DTYPE_KEY


def unequal_arrays() -> Case:
    np.savez("a.npz", a=np.arange(3), b=np.arange(2), c=np.arange(3))
    gives = [{"a": value, "c": value} for value in range(3)]
    case = twice(rows, "a.npz", arrays=["a", "c"], gives=gives)
    return case._replace(hint="open(..., arrays=['a', 'c'])")


def unequal_datasets() -> Case:
    with h5py.File("a.h5", "w") as file:
        for name, count in (("a", 3), ("b", 2), ("c", 3)):
            file[name] = np.arange(count)
    gives = [{"a": value, "c": value} for value in range(3)]
    return twice(rows, "a.h5", datasets=["a", "c"], gives=gives)


def no_axis() -> Case:
    np.save("a.npy", np.float64(2.5))

    def loaded() -> None:
        assert np.load("a.npy") == 2.5

    return Case(lambda: rows("a.npy"), loaded)


def missing_in_npy() -> Case:
    table = pa.table({"a": [1, None]})

    def advised() -> None:
        equal_in(pa.table({"a": table.column("a").fill_null(0)}), "b.npy")
        equal_in(table, "b.parquet", "b.arrow")

    return Case(lambda: ps.write(table, "a.npy"), advised)


def missing_in_structs() -> Case:
    table = pa.table({"a": [{"p": 1}, {"p": None}]})

    def advised() -> None:
        filled = table.column("a").combine_chunks().field("p").fill_null(0)
        struct = pa.StructArray.from_arrays([filled], ["p"])
        equal_in(pa.table({"a": struct}), "b.npz")
        equal_in(table, "b.parquet", "b.arrow")

    return Case(lambda: ps.write(table, "a.npz"), advised)


def missing_in_lists() -> Case:
    table = pa.table({"a": pa.array([[1, 2], [3, None]], pa.list_(pa.int64(), 2))})

    def advised() -> None:
        values = table.column("a").combine_chunks().flatten().fill_null(0)
        equal_in(pa.table({"a": pa.FixedSizeListArray.from_arrays(values, 2)}), "b.npy")
        equal_in(table, "b.parquet", "b.arrow")

    return Case(lambda: ps.write(table, "a.npy"), advised)


def many_fields() -> Case:
    names = [f"f{n:03}" for n in range(700)]
    metadata = dict.fromkeys(names, "m" * 100)
    wide = pa.table([pa.array([[n]], pa.large_list(pa.int64())) for n in range(700)], names)

    def advised() -> None:
        equal_in(wide.select(range(300)), "b.npz")
        plain = pa.table([pa.array([n]) for n in range(700)], names)
        equal_in(plain, "c.npz")

    return Case(lambda: ps.write(wide, "a.npz"), advised)


def much_metadata() -> Case:
    table = pa.table({"a": [1, 2]}).replace_schema_metadata({"notes": "m" * 60_000})

    def advised() -> None:
        equal_in(table.replace_schema_metadata({"notes": "m" * 100}), "b.npz")
        assert ps.open("b.npz").schema.metadata == {b"notes": b"m" * 100}

    return Case(lambda: ps.write(table, "a.npz"), advised)


BITS = np.array([1.5, -2.0], ml_dtypes.bfloat16)
MARK = {DTYPE_KEY: b"bfloat16"}


def kept_bits(values: pa.Array, field: pa.Field, floats: pa.Array, refuses: str) -> Case:
    """A format refuses the bits of a bfloat16, but not the same values as floats, and other formats accept the
    bits."""
    table = pa.table([values], schema=pa.schema([field]))

    def advised() -> None:
        equal_in(pa.table({"a": floats}), f"b.{refuses}")
        for ending in ("npy", "npz", "h5", "parquet", "arrow", "tar"):
            ps.write(table, f"b.{ending}")
            found = pa.table(ps.open(f"b.{ending}")).combine_chunks()
            (place,) = (n for n, name in enumerate(found.column_names) if name.startswith("a"))
            kept = found.schema.field(place)
            if pa.types.is_struct(kept.type):
                kept = kept.type.field(0)
            assert kept.metadata == MARK, ending
            assert found.column(place).to_pylist() == values.to_pylist()

    return Case(lambda: ps.write(table, f"a.{refuses}"), advised)


def bits() -> Case:
    numbers, field = pa.array(BITS.view(np.uint16)), pa.field("a", pa.uint16(), metadata=MARK)
    return kept_bits(numbers, field, pa.array(BITS.astype(np.float32)), "tfrecord")


def bits_in_structs() -> Case:
    inside = pa.field("p", pa.uint16(), metadata=MARK)
    values = pa.StructArray.from_arrays([pa.array(BITS.view(np.uint16))], fields=[inside])
    floats = pa.StructArray.from_arrays([pa.array(BITS.astype(np.float32))], ["p"])
    return kept_bits(values, pa.field("a", values.type), floats, "msgpack")


def texts_of_two_axes() -> Case:
    np.savez("a.npz", x=np.array([["a", "b"]]), y=np.zeros((1, 2)))

    def others() -> None:
        assert ps.open("a.npz", record="file", arrays=["y"])[0]["y"].shape == (1, 2)

    return Case(lambda: ps.open("a.npz", record="file"), others)


def no_such_group() -> Case:
    with h5py.File("a.h5", "w") as file:
        file["data/demo_0/x"] = np.zeros(2)

    def others() -> None:
        assert len(ps.open("a.h5", group="data/*")) == 2

    return Case(lambda: ps.open("a.h5", group="demo_*"), others)


CASES: Cases = {
    "'open(..., arrays=[...]) with the other arrays'": texts_of_two_axes,
    "'open(..., group=\"data/*\") reads the groups directly in data'": no_such_group,
    "f'open(..., {what}={most[:8]!r}){or_else}'": (unequal_arrays, unequal_datasets),
    "'numpy.load reads it'": no_axis,
    "'fill it, or write Parquet or Arrow'": (missing_in_npy, missing_in_structs, missing_in_lists),
    "'use fewer fields, less metadata, or types that arrays store without the comment'": (
        many_fields,
        much_metadata,
    ),
    "'make them float32 first, or write npy, npz, HDF5, Parquet, Arrow or a tar, which can'": (
        bits,
        bits_in_structs,
    ),
}
