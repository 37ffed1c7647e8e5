"""Hints about HDF5."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
from steps import Case, Cases, equal_in, left_out, rows

import penstock as ps

VALUES = [{"x": 4, "y": 0}, {"x": 5, "y": 1}]
"""The records of a file whose two fields can both be read."""
ONE = [{"y": 0}, {"y": 1}]
"""The records of a file of which only "y" can be read."""


def refused(path: str = "a.h5") -> Any:
    return rows(path)


def or_chosen(mended: Callable[[], None], in_group: Callable[[], None]) -> Case:
    """The advice to select names or groups, or to change "a.h5". `mended` changes "a.h5", and `in_group` makes
    "c.h5" with "g/y"."""

    def advised() -> None:
        assert rows("a.h5", datasets=["y"]) == ONE
        in_group()
        assert rows("c.h5", datasets=["g"]) == [{"g/y": 0}, {"g/y": 1}]
        mended()
        assert rows("a.h5") == VALUES

    return Case(refused, advised)


def grouped(odd: Callable[[Any], None]) -> Callable[[], None]:
    """A file with an unsupported dataset and a group that can be read."""

    def make() -> None:
        with h5py.File("c.h5", "w") as file:
            odd(file)
            file["g/y"] = np.arange(2)
        with h5py.File("a.h5", "a") as file:
            assert "g" not in file

    return make


def put(values: Any) -> None:
    """Put the values of "x" into the file itself."""
    with h5py.File("a.h5", "a") as file:
        if "x" in file:
            del file["x"]
        file["x"] = np.asarray(values)


def other_file() -> None:
    with h5py.File("other.h5", "w") as file:
        file["far"] = np.array([4, 5])


def made_with(odd: Callable[[Any], None], mended: Callable[[], None]) -> Case:
    with h5py.File("a.h5", "w") as file:
        odd(file)
        file["y"] = np.arange(2)
    return or_chosen(mended, grouped(odd))


def external_link() -> Case:
    other_file()

    def odd(file: Any) -> None:
        file["x"] = h5py.ExternalLink("other.h5", "/far")

    def mended() -> None:
        with h5py.File("other.h5") as other:
            values = other["far"][:]
        put(values)

    return made_with(odd, mended)


def virtual_dataset() -> Case:
    other_file()

    def odd(file: Any) -> None:
        layout = h5py.VirtualLayout((2,), "i8")
        layout[:] = h5py.VirtualSource("other.h5", "far", (2,))
        file.create_virtual_dataset("x", layout)

    return made_with(odd, _copied)


def external_storage() -> Case:
    Path("values.bin").write_bytes(np.array([4, 5]).tobytes())

    def odd(file: Any) -> None:
        file.create_dataset("x", (2,), "i8", external=[("values.bin", 0, 16)])

    return made_with(odd, _copied)


def _copied() -> None:
    with h5py.File("a.h5") as file:
        values = file["x"][:]
    put(values)


def plug_in_filter() -> Case:
    def odd(file: Any) -> None:
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((2,))
        plan.set_filter(
            307, h5py.h5z.FLAG_OPTIONAL
        )  # bzip2's filter; its plug-in need not be installed
        space = h5py.h5s.create_simple((2,))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT64, space, plan)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([4, 5]))

    def repacked() -> None:
        """Does what h5repack -f GZIP=4 does."""
        with h5py.File("a.h5") as old, h5py.File("b.h5", "w") as new:
            for name in old:
                new.create_dataset(name, data=old[name][:], chunks=(2,), compression=4)
        Path("b.h5").replace("a.h5")

    return made_with(odd, repacked)


def tiny_chunks() -> Case:
    def odd(file: Any) -> None:
        # These values are never written, so each record is in many chunks but takes no space.
        file.create_dataset("x", (2, 1 << 17), "u1", chunks=(1, 1))

    def repacked() -> None:
        with h5py.File("a.h5") as old, h5py.File("b.h5", "w") as new:
            for name in old:
                new.create_dataset(name, data=old[name][:], chunks=(1, *old[name].shape[1:]))
        found = rows("b.h5")
        assert [record["y"] for record in found] == [0, 1]
        assert all(record["x"].shape == (1 << 17,) and not record["x"].any() for record in found)
        put([4, 5])

    return made_with(odd, repacked)


def text_in_structures() -> Case:
    def odd(file: Any) -> None:
        kind = np.dtype([("a", "i8"), ("t", h5py.string_dtype())])
        file["x"] = np.array([(4, "p"), (5, "q")], kind)

    def of_their_own() -> None:
        with h5py.File("b.h5", "w") as file:
            file["x/a"], file["y"] = np.array([4, 5]), np.arange(2)
            file.create_dataset("x/t", data=["p", "q"], dtype=h5py.string_dtype())
        expected = [{"x/a": 4, "x/t": "p", "y": 0}, {"x/a": 5, "x/t": "q", "y": 1}]
        assert rows("b.h5") == expected
        put([4, 5])

    return made_with(odd, of_their_own)


# -- writing --------------------------------------------------------------------------------------


def name_with_a_dot() -> Case:
    def renamed() -> None:
        ps.write({"b": [1]}, "b.h5")
        assert rows("b.h5") == [{"b": 1}]

    return Case(lambda: ps.write({"a/./b": [1]}, "a.h5"), renamed)


def lists_of_times() -> Case:
    times = pa.array([[0], [1, 2]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    table = pa.table({"a": times, "b": [1, 2]})

    def advised() -> None:
        numbers = table.set_column(0, "a", times.cast(pa.list_(pa.int64())))
        equal_in(numbers, "b.h5")
        left_out(table, "a", "c.h5")
        equal_in(table, "b.parquet", "b.arrow", "b.npz")

    return Case(lambda: ps.write(table, "a.h5"), advised)


def lists_of_structs() -> Case:
    table = pa.table({"a": [[{"p": 1}], []], "b": [1, 2]})

    def advised() -> None:
        left_out(table, "a", "c.h5")
        equal_in(table, "b.parquet", "b.arrow", "b.npz")

    return Case(lambda: ps.write(table, "a.h5"), advised)


def times_in_structs() -> Case:
    times = pa.array([0, 1], pa.timestamp("us"))
    table = pa.table({"a": pa.StructArray.from_arrays([times], ["t"]), "b": [1, 2]})

    def advised() -> None:
        numbers = table.column("a").cast(pa.struct([("t", pa.int64())]))
        equal_in(table.set_column(0, "a", numbers), "b.h5")
        left_out(table, "a", "c.h5")
        equal_in(table, "b.parquet", "b.arrow", "b.npz")

    return Case(lambda: ps.write(table, "a.h5"), advised)


def missing_texts() -> Case:
    table = pa.table({"a": ["p", None]})

    def advised() -> None:
        equal_in(pa.table({"a": table.column("a").fill_null("")}), "b.h5")
        equal_in(table, "b.parquet", "b.arrow", "b.npz")

    return Case(lambda: ps.write(table, "a.h5"), advised)


def without_bytes(values: pa.Array, ending: str) -> Callable[[], Case]:
    def make() -> Case:
        table = pa.table({"a": values, "b": [1, 2]})

        def advised() -> None:
            left_out(table, "a", f"c.{ending}")
            equal_in(table, "b.arrow", "b.npz")

        return Case(lambda: ps.write(table, f"a.{ending}"), advised)

    make.__name__ = f"without_bytes_{values.type.id}_{ending}"
    return make


EMPTY = (
    pa.array([b"", b""], pa.binary(0)),
    pa.array([[], []], pa.list_(pa.int64(), 0)),
    pa.array([{}, {}], pa.struct([])),
)


def many_fields() -> Case:
    wide = pa.table({f"f{n:03}": pa.array([[n]], pa.large_list(pa.int64())) for n in range(700)})

    def advised() -> None:
        equal_in(wide.select(range(300)), "b.h5")
        own = [column.cast(pa.list_(pa.int64())) for column in wide.columns]
        ps.write(pa.table(own, wide.column_names), "c.h5")
        assert rows("c.h5") == [{name: [n] for n, name in enumerate(wide.column_names)}]

    return Case(lambda: ps.write(wide, "a.h5"), advised)


def new_label() -> Case:
    parts = [
        pa.table({"a": pa.array(labels).dictionary_encode()}) for labels in (["p", "q"], ["r", "p"])
    ]
    batches = [batch for part in parts for batch in part.to_batches()]

    def advised() -> None:
        ps.write(pa.Table.from_batches(batches).unify_dictionaries(), "b.h5", chunk_records=2)
        assert [record["a"] for record in rows("b.h5")] == ["p", "q", "r", "p"]

    return Case(lambda: ps.write(iter(batches), "a.h5", chunk_records=2), advised)


def _not_utf_8() -> Callable[..., Any]:
    with h5py.File("a.h5", "w") as file:
        file["s"] = np.array([b"ab", b"\xff"], "S4")
    return lambda **options: rows("a.h5", **options)


def bytes_in_fixed_strings_are_read() -> Case:
    read = _not_utf_8()

    def as_bytes() -> None:
        assert read(types={"s": "binary"}) == [{"s": b"ab"}, {"s": b"\xff"}]

    return Case(read, as_bytes)


def bytes_in_fixed_strings_are_skipped() -> Case:
    read = _not_utf_8()

    def skipped() -> None:
        assert read(damage="skip") == [{"s": "ab"}]

    return Case(read, skipped)


def groups_of_one_layout() -> Case:
    with h5py.File("a.h5", "w") as file:
        for demo, count in (("demo_0", 2), ("demo_1", 3)):
            file[f"data/{demo}/y"] = np.arange(count)
        file["mask/train"] = np.array([b"demo_0"])

    def in_groups() -> None:
        assert [row["y"] for row in rows("a.h5", group="data/*")] == [0, 1, 0, 1, 2]

    return Case(refused, in_groups)


CASES: Cases = {
    "f'open(..., group={pattern!r}), which reads these groups as one table'": groups_of_one_layout,
    '\'open(..., types={FIELD: "binary"}) reads bytes; damage="skip" leaves such records out\'': (
        bytes_in_fixed_strings_are_read,
        bytes_in_fixed_strings_are_skipped,
    ),
    "'rename it'": name_with_a_dot,
    "'choose what to read with datasets=, or put the data into this file'": external_link,
    "'choose what to read with datasets=, or copy the values into this file'": (
        virtual_dataset,
        external_storage,
    ),
    "'choose what to read with datasets=, or h5repack it with gzip'": plug_in_filter,
    "'choose what to read with datasets=, or h5repack it with larger chunks'": tiny_chunks,
    "'choose what to read with datasets=, or store each in a separate dataset'": (
        text_in_structures
    ),
    "'cast it to lists of numbers, leave it out (columns=), or write Parquet, Arrow or npz'": (
        lists_of_times,
        lists_of_structs,
    ),
    "'cast them to int64, leave them out (columns=), or write Parquet, Arrow or npz'": (
        times_in_structs
    ),
    "'fill it, or write Parquet, Arrow or npz'": missing_texts,
    "'leave it out (columns=), or write Arrow or npz'": tuple(
        without_bytes(values, ending) for values in EMPTY for ending in ("h5", "parquet")
    ),
    "'use fewer fields, or types that HDF5 has'": many_fields,
    "'use one dictionary for all batches (unify_dictionaries)'": new_label,
}
