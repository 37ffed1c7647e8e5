"""Hints about files that are damaged, changed, or beyond a limit."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from steps import Case, Cases, rows

import frames
import penstock as ps
from cli.running import run
from damaging import flipped
from fuzz.riegeli_files import chunk, file_of

PAYLOADS = [b"one", b"two", b"three"]


def typed(command: str) -> str:
    """Run a command that a hint prints. It must succeed; returns its output."""
    done = run(*command.split()[1:])
    assert done.status == 0, done.err
    return done.out


def found_by(command: str) -> str:
    """Run a command that a hint prints. It must report damage; returns its output."""
    done = run(*command.split()[1:])
    assert done.status == 1, done.err
    return done.out


def payloads(path: str = "a.tfrecord") -> list[bytes]:
    """The undecoded records."""
    return [row["record"] for row in rows(path, raw=True)]


def indexed(path: str = "a.tfrecord", data: bytes = frames.file_of(PAYLOADS)) -> None:
    """A file from another writer, and its index."""
    Path(path).write_bytes(data)
    ps.index(path)


def decay(path: str, bit: int) -> None:
    """Flip one bit as a disk fault does: the time of the file does not change."""
    then = os.stat(path)
    Path(path).write_bytes(flipped(Path(path).read_bytes(), bit))
    os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))


# -- what verify and repair find ------------------------------------------------------------------


def a_damaged_head() -> Case:
    indexed()
    decay("a.tfrecord", 8 * frames.starts_of(PAYLOADS)[1])

    def verified() -> None:
        assert "record 1, bytes 19 to 38" in found_by("penstock verify a.tfrecord")

    dataset = ps.open("a.tfrecord", raw=True)
    return Case(lambda: dataset.take([1]), verified, "penstock verify a.tfrecord")


def an_append_to_what_was_cut() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord", index=False)
    Path("a.tfrecord").write_bytes(Path("a.tfrecord").read_bytes()[:-1])

    def verified() -> None:
        assert "record 1, " in found_by("penstock verify a.tfrecord")

    return Case(lambda: ps.append({"a": [3]}, "a.tfrecord"), verified, "penstock verify a.tfrecord")


def a_block_that_decayed() -> Case:
    np.save("a.npy", np.arange(3))
    ps.index("a.npy", checksums=True)
    decay("a.npy", 8 * (os.path.getsize("a.npy") - 1))

    def verified() -> None:
        assert "bytes 0 to 152" in found_by("penstock verify a.npy")

    return Case(lambda: rows("a.npy", checksums="index"), verified, "penstock verify a.npy")


APPENDABLE = "penstock repair --in-place a.tfrecord"


def _append(path: str = "a.tfrecord") -> Callable[[], Any]:
    return lambda: ps.append({"record": [b"four"]}, path, payload="raw")


def a_last_record_that_decayed() -> Case:
    indexed()
    decay("a.tfrecord", 8 * frames.starts_of(PAYLOADS)[2])

    def repaired() -> None:
        typed(APPENDABLE)
        _append()()
        assert payloads() == [*PAYLOADS, b"four"]

    return Case(_append(), repaired, APPENDABLE)


def a_last_member_that_decayed() -> Case:
    members = [gzip.compress(frames.file_of(part)) for part in (PAYLOADS[:2], PAYLOADS[2:])]
    indexed(data=b"".join(members))
    decay("a.tfrecord", 8 * (os.path.getsize("a.tfrecord") - 12))

    def repaired() -> None:
        typed(APPENDABLE)
        _append()()
        assert payloads() == [*PAYLOADS, b"four"]

    return Case(_append(), repaired, APPENDABLE)


def an_empty_last_member() -> Case:
    indexed(data=gzip.compress(frames.file_of(PAYLOADS)) + gzip.compress(b""))

    def repaired() -> None:
        typed("penstock repair a.tfrecord --into NEW")
        _append("NEW")()
        assert payloads("NEW") == [*PAYLOADS, b"four"]

    hint = "penstock repair a.tfrecord --into NEW, and append to that"
    return Case(_append(), repaired, hint)


# -- indexes --------------------------------------------------------------------------------------


def no_checksums() -> Case:
    np.save("a.npy", np.arange(3))

    def indexed() -> None:
        typed("penstock index --checksums a.npy")
        assert rows("a.npy", checksums="index") == [{"data": value} for value in range(3)]

    return Case(
        lambda: rows("a.npy", checksums="index"), indexed, "penstock index --checksums a.npy"
    )


def checksums_of_another_size() -> Case:
    np.save("a.npy", np.arange(3))
    ps.index("a.npy", checksums=True)
    np.save("a.npy", np.arange(1 << 18))

    def again() -> None:
        typed("penstock index --checksums --force a.npy")
        assert rows("a.npy", checksums="index")[-1] == {"data": (1 << 18) - 1}

    return Case(
        lambda: ps.open("a.npy", checksums="index"),
        again,
        "penstock index --checksums --force a.npy",
    )


def an_index_of_what_was_rewritten() -> Case:
    many = [b"x" * (n % 7 + 1) for n in range(300)]
    indexed(data=frames.file_of(many))
    dataset = ps.open("a.tfrecord", raw=True)
    assert len(dataset) == 300
    then = os.stat("a.tfrecord")
    with open("a.tfrecord", "r+b") as file:
        file.write(frames.file_of(many[::-1]))
    os.utime("a.tfrecord", ns=(then.st_atime_ns, then.st_mtime_ns))

    def again() -> None:
        typed("penstock index a.tfrecord")
        assert ps.open("a.tfrecord", raw=True).take([7])["record"].to_pylist() == [many[-8]]

    hint = "penstock index a.tfrecord, and open the data again"
    return Case(lambda: dataset.take([7]), again, hint)


# -- what kernels find ----------------------------------------------------------------------------


def a_record_that_decayed() -> Case:
    Path("a.tfrecord").write_bytes(flipped(frames.file_of(PAYLOADS), 8 * 32))

    def verified() -> None:
        assert "record 1, bytes 19 to 38" in found_by("penstock verify a.tfrecord")

    return Case(payloads, verified, "penstock verify a.tfrecord")


def records_of_another_kind() -> Case:
    schema = pa.schema([("a", pa.string())])
    ps.write({"a": [1, 2]}, "a.tfrecord", index=False)

    def told() -> None:
        assert "int64" in typed("penstock schema --all a.tfrecord")
        assert rows("a.tfrecord", schema=pa.schema([("a", pa.int64())])) == [{"a": 1}, {"a": 2}]

    return Case(lambda: rows("a.tfrecord", schema=schema), told, "penstock schema --all a.tfrecord")


def _mixed(first: list[Any], then: list[Any], named: pa.DataType, advised: pa.DataType) -> Case:
    ps.write({"a": first, "b": [0]}, "a.tfrecord", index=False)
    ps.write({"a": then, "b": [0]}, "b.tfrecord", index=False)

    def read(type_: pa.DataType) -> list[Any]:
        return rows(["a.tfrecord", "b.tfrecord"], schema=pa.schema([("a", type_)]))

    def as_told() -> None:
        wanted = [{"a": first[0], "b": 0}, {"a": then[0], "b": 0}]
        assert read(advised) == [{"a": first[0]}, {"a": then[0]}]
        assert rows(["a.tfrecord", "b.tfrecord"], types={"a": advised}) == wanted

    name = str(advised).replace("double", "float64")
    hint = f"open(..., types={{'a': {name!r}}}), or schema= with this type"
    return Case(lambda: read(named), as_told, hint)


def floats_as_whole_numbers() -> Case:
    return _mixed([1], [0.5], pa.int64(), pa.float64())


def whole_numbers_as_floats() -> Case:
    return _mixed([1], [2**53 + 1], pa.float64(), pa.int64())


def lists_after_single_values() -> Case:
    ps.write({"a": list(range(2000))}, "a.tfrecord", index=False)
    ps.write({"a": [[7, 8]]}, "b.tfrecord", index=False)
    files = ["a.tfrecord", "b.tfrecord"]

    def with_all() -> None:
        assert rows(files, infer_records="all")[-1] == {"a": [7, 8]}

    return Case(lambda: rows(files), with_all)


def _late(**options: Any) -> list[Any]:
    ps.convert(ps.open("a.tfrecord", **options), "b.parquet", overwrite=True)
    return rows("b.parquet")


LATE = 'open(..., infer_records="all"), or name the columns to keep'


def a_field_that_comes_late() -> Case:
    late = [*[None] * 4999, 7]
    ps.write({"a": range(5000), "late": late}, "a.tfrecord", index=False)

    def seen() -> None:
        assert _late(infer_records="all")[-1] == {"a": 4999, "late": 7}

    return Case(_late, seen, LATE)


def a_late_field_is_left_out() -> Case:
    a_field_that_comes_late()

    def left_out() -> None:
        assert _late(columns=["a"])[-1] == {"a": 4999}

    return Case(_late, left_out, LATE)


NO_EXAMPLES = (
    'open(..., damage="skip") leaves such records out, raw=True gives their bytes as they are'
)


def _no_example() -> Callable[..., list[Any]]:
    ps.write({"a": [1]}, "a.tfrecord", index=False)
    with open("a.tfrecord", "ab") as file:
        file.write(frames.frame(b"\x0f"))
    given = {"schema": pa.schema([("a", pa.int64())])}
    return lambda **options: rows(
        "a.tfrecord", **(options if "raw" in options else options | given)
    )


def no_example_is_left_out() -> Case:
    read = _no_example()

    def skipped() -> None:
        assert read(damage="skip") == [{"a": 1}]

    return Case(read, skipped, NO_EXAMPLES)


def no_example_is_read_as_it_is() -> Case:
    read = _no_example()

    def raw() -> None:
        assert read(raw=True)[1] == {"record": b"\x0f"}

    return Case(read, raw, NO_EXAMPLES)


# -- limits ---------------------------------------------------------------------------------------


def _limited(read: Callable[[Any], Any], gives: Any, hint: str, **low: int) -> Case:
    """Reading with a limit that is too low, and with the limit that the hint names."""
    name, asked = hint.removeprefix("open(..., limits={'").removesuffix("})").split("': ")

    def raised() -> None:
        assert read({name: int(asked.replace("...", "500"))}) == gives

    return Case(lambda: read(low), raised, hint)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def deep_messagepack() -> Case:
    Path("a.msgpack").write_bytes(msgpack.packb({"a": _nested(20)}))
    hint = "open(..., limits={'nesting': ...})"
    return _limited(
        lambda limits: rows("a.msgpack", limits=limits), [{"a": _nested(20)}], hint, nesting=10
    )


def a_long_record_of_arrayrecord() -> Case:
    Path("a.array_record").write_bytes(file_of([chunk([b"x" * 50])]))
    hint = "open(..., limits={'record_bytes': 50})"
    return _limited(
        lambda limits: rows("a.array_record", limits=limits, raw=True),
        [{"record": b"x" * 50}],
        hint,
        record_bytes=49,
    )


def a_long_record_in_an_index() -> Case:
    indexed()
    hint = "open(..., limits={'record_bytes': 5})"
    return _limited(
        lambda limits: (
            ps.open("a.tfrecord", raw=True, limits=limits).take([2])["record"].to_pylist()
        ),
        [b"three"],
        hint,
        record_bytes=4,
    )


def a_long_footer() -> Case:
    table = pa.table({"a": [1]}, pa.schema([("a", pa.int64())], {"more": "x" * 999}))
    pq.write_table(table, "a.parquet", store_schema=False)
    data = Path("a.parquet").read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    hint = f"open(..., limits={{'footer_bytes': {length}}})"
    return _limited(
        lambda limits: rows("a.parquet", limits=limits), [{"a": 1}], hint, footer_bytes=99
    )


def deep_parquet() -> Case:
    array = pa.array([1])
    for _ in range(30):
        array = pa.StructArray.from_arrays([array], ["x"])
    pq.write_table(pa.table({"x": array}), "a.parquet")
    gives = [{"x": array[0].as_py()}]
    hint = "open(..., limits={'nesting': 40})"
    return _limited(lambda limits: rows("a.parquet", limits=limits), gives, hint, nesting=20)


def never_written() -> Case:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("a", (1 << 28,), "f8", fillvalue=7)
    hint = f"open(..., limits={{'member_bytes': {8 << 28}}})"
    return _limited(
        lambda limits: ps.open("a.h5", limits=limits).take([5])["a"].to_pylist(), [7.0], hint
    )


CASES: Cases = {
    "'open(..., infer_records=\"all\")'": lists_after_single_values,
    "command('penstock', 'verify', path)": (a_damaged_head, an_append_to_what_was_cut),
    "command('penstock', 'verify', self.path)": a_block_that_decayed,
    "command('penstock', 'repair', '--in-place', source.path)": (
        a_last_record_that_decayed,
        a_last_member_that_decayed,
    ),
    "f\"{command('penstock', 'repair', source.path, '--into', 'NEW')}, and append to that\"": (
        an_empty_last_member
    ),
    "command('penstock', 'index', '--checksums', source.path)": no_checksums,
    "command('penstock', 'index', '--checksums', '--force', self.path)": checksums_of_another_size,
    "_hint(fault, file)": (
        an_index_of_what_was_rewritten,
        a_record_that_decayed,
        records_of_another_kind,
        floats_as_whole_numbers,
        whole_numbers_as_floats,
        a_field_that_comes_late,
        a_late_field_is_left_out,
        no_example_is_left_out,
        no_example_is_read_as_it_is,
        deep_messagepack,
        a_long_record_of_arrayrecord,
    ),
    "raise_limit('record_bytes', found)": a_long_record_in_an_index,
    "raise_limit(name, asked)": a_long_footer,
    "raise_limit('nesting', 2 * limit)": deep_parquet,
    "f\"open(..., limits={{'member_bytes': {total}}})\"": never_written,
}
