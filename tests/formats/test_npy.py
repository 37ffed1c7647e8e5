"""npy: headers, dtypes, orders, and what is refused; NumPy is the oracle."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from memory_storage import MemoryStorage
from penstock.formats.npy_header import MAGIC, parse_header
from penstock.types import DTYPE_KEY, fixed_tensors
from reading import SHARED, run_python, shared_path

GOLDEN = SHARED / "specs" / "golden" / "neighbours"
CORPUS = SHARED / "corpus" / "npy"


def npy(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version, allow_pickle=False)
    return out.getvalue()


def with_header(text: str, data: bytes = b"", version: int = 1) -> bytes:
    """An npy file of any header text."""
    encoded = text.encode("utf-8" if version == 3 else "latin-1") + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(encoded))
    return MAGIC + bytes((version, 0)) + size + encoded + data


def opened(data: bytes, **options: Any) -> ps.Dataset:
    storage = MemoryStorage({"a.npy": data})
    return ps.open("a.npy", storage=storage, index="never", format="npy", **options)


def table(data: bytes, **options: Any) -> pa.Table:
    dataset = opened(data, **options)
    return pa.Table.from_batches(list(dataset.scan()), dataset.schema)


def values(column: Any) -> Any:
    """A column as nested lists, tensors too."""
    found = column.combine_chunks()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    if not hasattr(found, "to_numpy_ndarray"):
        return found.to_pylist()
    if found.type.value_type == pa.bool_():  # which pyarrow has no tensors of
        flat = np.array(found.storage.flatten().to_pylist(), bool)
        return flat.reshape(len(found), *found.type.shape).tolist()
    return found.to_numpy_ndarray().tolist()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.npy")), ids=lambda path: path.name)
def test_golden_files_read_as_their_json_says(path: Path) -> None:
    told = json.loads(path.with_name(path.name + ".expected.json").read_text())
    if told.get("shape") == []:
        with pytest.raises(ps.UnsupportedError, match="no records"):
            ps.open(str(path), index="never")
        return
    dataset = ps.open(str(path), index="never")
    found = pa.Table.from_batches(list(dataset.scan()))
    if "rows" in told:
        assert [list(record.values()) for record in found.to_pylist()] == told["rows"]
        assert found.schema.names == [field[0] for field in told["descr"]]
    else:
        assert found.schema.names == ["data"]
        assert values(found.column("data")) == told["values"]


def corpus_files() -> list[Path]:
    return sorted(CORPUS.rglob("*.npy"))


def test_the_corpus_reads_as_numpy_reads_it() -> None:
    paths = corpus_files()
    assert len(paths) > 30, f"the corpus is not at {CORPUS}"
    for path in paths:
        try:
            oracle = np.load(path, allow_pickle=False)
        except ValueError:
            with pytest.raises(ps.UnsupportedError, match="pickle"):
                ps.open(str(path), index="never")
            continue
        if not oracle.shape:
            with pytest.raises(ps.UnsupportedError):
                ps.open(str(path), index="never")
            continue
        for mmap in (False, True):
            dataset = ps.open(str(path), index="never", mmap=mmap)
            found = pa.Table.from_batches(list(dataset.scan()))
            assert values(found.column("data")) == oracle.tolist(), path
            numbers = [len(dataset) - 1, 0]
            assert values(pa.table([dataset.take(numbers)["data"]], ["d"]).column("d")) == (
                oracle[numbers].tolist()
            )


def test_a_file_is_told_without_its_name(tmp_path: Path) -> None:
    for number, path in enumerate(corpus_files()[:5] + [GOLDEN / "struct.npy"]):
        nameless = tmp_path / f"file{number}"
        nameless.write_bytes(path.read_bytes())
        try:
            assert ps.open(str(nameless), index="never").shards[0].format == "npy"
        except ps.UnsupportedError as error:
            assert "no records" in str(error)


TIMES = ["2020-01-02", "1969-12-31", "NaT"]
ARRAYS: dict[str, np.ndarray] = {
    **{
        f"{order}{kind}": np.array([[1, 0], [7, 3]]).astype(f"{order}{kind}")
        for order in "<>"
        for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    },
    "bool": np.array([True, False, True] * 5),
    "bool tensors": np.array([[True, False, True]] * 3),
    "bytes": np.array([b"a", b"", b"b\0c", b"four"]),
    "bytes by shape": np.array([[b"a", b"xyz"], [b"", b"q"]]),
    "text": np.array(["é", "", "a\0b", "𝄞x"]),
    "text, big endian": np.array(["é", "abc"]).astype(">U3"),
    **{f"time {u}": np.array(TIMES, f"M8[{u}]") for u in ("D", "s", "ms", "us", "ns")},
    "time, big endian": np.array(TIMES, ">M8[s]"),
    **{f"duration {u}": np.array([5, -7], f"m8[{u}]") for u in ("s", "ms", "us", "ns")},
    "three axes": np.arange(24).reshape(2, 3, 4),
    "an empty axis": np.zeros((3, 0, 2), np.float32),
    "no records": np.zeros((0, 4), np.int16),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_dtype_reads_as_numpy_has_it(name: str, order: str) -> None:
    array = np.asarray(ARRAYS[name], order=order)  # type: ignore[call-overload]
    data = npy(array)
    found = table(data)
    assert found.num_rows == len(array)
    wanted: Any = array.tolist()
    if array.dtype.kind in "Mm":
        kind = found.schema.field("data").type
        wanted = pa.array(array.astype(array.dtype.newbyteorder("=")), kind).to_pylist()
    assert values(found.column("data")) == wanted
    if len(array):
        dataset = opened(data)
        last = len(array) - 1
        numbers = [last, 0, last, 0, 0]
        assert values(pa.table([dataset.take(numbers)["data"]], ["d"]).column("d")) == (
            [wanted[n] for n in numbers]
        )


@pytest.mark.parametrize(
    ("unit", "kind"),
    [("W", pa.date32()), ("M", pa.date32()), ("Y", pa.date32()), ("h", pa.timestamp("s"))],
)
def test_other_units_become_the_nearest_that_arrow_has(unit: str, kind: Any) -> None:
    array = np.array(["2021-03-04", "1950-01-01", "NaT"], f"M8[{unit}]")
    found = table(npy(array)).column("data")
    assert found.type == kind
    days = array.astype("M8[D]" if kind == pa.date32() else "M8[s]")
    assert found.to_pylist() == pa.array(days, kind).to_pylist()


def test_a_time_beyond_arrows_is_an_error_and_no_other_time() -> None:
    for array in (np.array([0, 1 << 62], "M8[h]"), np.array([0, 1 << 40], "M8[D]")):
        with pytest.raises(ps.FormatError, match="record 1"):
            table(npy(array))


def test_what_arrow_lacks_comes_as_its_bits_and_says_so() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    data = with_header("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", bits.tobytes())
    field = opened(data).schema.field("data")
    assert (field.type, field.metadata) == (pa.uint16(), {DTYPE_KEY: b"bfloat16"})
    assert table(data).column("data").to_pylist() == bits.tolist()

    complexes = np.array([1 + 2j, 3 - 1j], np.complex64)
    field = opened(npy(complexes)).schema.field("data")
    assert field.metadata == {DTYPE_KEY: b"complex64"}
    assert values(table(npy(complexes)).column("data")) == [[1, 2], [3, -1]]

    plain = np.array([b"ab", b"\0c"], "V2")
    assert table(npy(plain)).column("data").to_pylist() == [b"ab", b"\0c"]


def test_structured_arrays_have_fields_nested_ones_too() -> None:
    dtype = np.dtype(
        [
            ("id", "<i8"),
            ("box", "<f4", (2, 2)),
            ("in", [("name", "<U3"), ("on", "?"), ("at", ">i2", (3,))]),
        ]
    )
    array = np.zeros(5, dtype)
    array["id"] = np.arange(5)
    array["box"] = np.arange(20).reshape(5, 2, 2)
    array["in"]["name"] = ["a", "bé", "", "abc", "x"]
    array["in"]["on"] = [True, False, True, True, False]
    array["in"]["at"] = np.arange(15).reshape(5, 3)
    found = table(npy(array))
    assert found.schema.names == ["id", "box", "in"]
    assert values(found.column("box")) == array["box"].tolist()
    records = found.column("in").to_pylist()
    assert [r["name"] for r in records] == array["in"]["name"].tolist()
    assert [list(r["at"]) for r in records] == array["in"]["at"].tolist()
    chosen = opened(npy(array), columns=["in", "id"]).take([4, 2])
    assert chosen["id"].to_pylist() == [4, 2]
    assert [r["on"] for r in chosen["in"].to_pylist()] == [False, True]


def test_padding_of_aligned_structures_is_no_field() -> None:
    array = np.zeros(2, np.dtype([("a", "u1"), ("b", "<i8")], align=True))
    array["a"], array["b"] = [1, 2], [3, 4]
    assert table(npy(array)).to_pydict() == {"a": [1, 2], "b": [3, 4]}


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_are_read(version: tuple[int, int]) -> None:
    assert table(npy(np.arange(4), version)).column("data").to_pylist() == [0, 1, 2, 3]


def test_headers_of_python_2_and_odd_spelling_are_read() -> None:
    for text in (
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2L,), }",
        '{ "shape":(2,),"fortran_order" :False,\t"descr":"<i2"}   ',
        "{u'descr': u'<i2', 'fortran_order': False, 'shape': (+2,)}".replace("+", ""),
        "{'\\x64escr': '<i2', 'fortran_order': False, 'shape': (2,)}",
    ):
        assert table(with_header(text, b"\1\0\2\0")).column("data").to_pylist() == [1, 2]


GOOD = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }"
BAD_HEADERS = {
    "a call": GOOD.replace("'<i2'", "__import__('os').system('touch canary')"),
    "no key": "{'descr': '<i2', 'shape': (2,)}",
    "a key more": GOOD.replace("}", "'x': 1}"),
    "a key twice": GOOD.replace("}", "'descr': '<i4'}"),
    "a list as shape": GOOD.replace("(2,)", "[2]"),
    "a negative size": GOOD.replace("(2,)", "(-2,)"),
    "a size that is True": GOOD.replace("(2,)", "(True,)"),
    "a product beyond 64 bits": GOOD.replace("(2,)", "(4294967296, 4294967296)"),
    "twenty digits": GOOD.replace("(2,)", "(99999999999999999999,)"),
    "too many axes": GOOD.replace("(2,)", "(1,)".replace("1", "1, " * 64 + "1")),
    "order as a number": GOOD.replace("False", "0"),
    "an unknown kind": GOOD.replace("<i2", "<q2"),
    "an unknown size": GOOD.replace("<i2", "<i3"),
    "a size too wide": GOOD.replace("<i2", "|S9999999999"),
    "something behind": GOOD + " 1",
    "not closed": GOOD[:-1],
    "a string not closed": GOOD[:12],
    "nesting": GOOD.replace("(2,)", "(" * 5000),
    "nested dtypes": GOOD.replace("'<i2'", "[('a', " * 60 + "'<i2'" + ")]" * 60),
    "fields of one name": GOOD.replace("'<i2'", "[('a', '<i2'), ('a', '<i2')]"),
    "a field without name": GOOD.replace("'<i2'", "[(1, '<i2')]"),
    "a sub-array beyond memory": GOOD.replace("'<i2'", "[('a', '<i2', (4294967296, 4096))]"),
    "an escape of no character": GOOD.replace("'<i2'", "'\\ud800'"),
    "nothing": "",
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_a_header_that_is_no_literal_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises((ps.FormatError, ps.UnsupportedError)) as caught:
        opened(with_header(BAD_HEADERS[name], b"\0" * 64))
    assert caught.value.file == "a.npy"
    assert not list(tmp_path.iterdir())


def test_no_header_takes_long_or_much() -> None:
    """A megabyte of the worst nesting, of fields and of digits, within a second and 300 MB."""
    code = """
import sys, time
import penstock as ps
from penstock.formats.npy_header import parse_header, MAGIC
import struct
texts = ["(" * (1 << 20), "{'a':" * 200000, "[" * 10 + "(1," * 300000, "'" * (1 << 20), "1" * (1 << 20),
    "{'descr': [" + ",".join(f"('f{n}','<i2')" for n in range(50000)) + "], 'fortran_order': False, 'shape': (0,)}",
    "'" + "\\\\x41" * 250000 + "'", " " * (1 << 20)]
for text in texts:
    data = MAGIC + b"\\2\\0" + struct.pack("<I", len(text)) + text.encode()
    start = time.monotonic()
    try:
        parse_header(lambda at, size: data[at:at + size])
    except ps.PenstockError:
        pass
    assert time.monotonic() - start < 5, text[:20]
"""
    run_python(code, megabytes=300)


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Touch:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    path = tmp_path / "o.npy"
    np.save(path, np.array([Touch()], object), allow_pickle=True)
    assert pickle.PROTO in path.read_bytes()
    with pytest.raises(ps.UnsupportedError, match="pickle"):
        ps.open(str(path), index="never")
    assert not canary.exists()


def test_a_file_shorter_than_its_shape_says_is_cut() -> None:
    data = npy(np.arange(100))
    with pytest.raises(ps.TruncatedError, match="a.npy"):
        opened(data[:-1])
    with pytest.raises(ps.FormatError, match="bytes follow the array"):
        opened(data + b"x")


def test_records_of_no_bytes_are_bounded() -> None:
    huge = "{'descr': '|S0', 'fortran_order': False, 'shape': (9223372036854775,), }"
    with pytest.raises(ps.LimitError, match="no bytes"):
        opened(with_header(huge))


def test_a_record_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ps.LimitError, match="record_bytes"):
        opened(npy(np.zeros((2, 1000))), limits={"record_bytes": 7999})


def test_a_schema_casts_and_chooses_fields() -> None:
    data = npy(np.arange(5, dtype=np.int16))
    wanted = pa.schema([pa.field("data", pa.float64())])
    assert table(data, schema=wanted).schema.field("data").type == pa.float64()
    with pytest.raises(ps.SchemaError, match="other"):
        opened(data, schema=pa.schema([pa.field("other", pa.int8())]))
    with pytest.raises(ps.SchemaError):
        table(npy(np.array([300])), schema=pa.schema([pa.field("data", pa.int8())]))
    with pytest.raises(ps.UnsupportedError):
        opened(data, raw=True)


def test_fortran_order_is_read_from_where_its_values_lie(tmp_path: Path) -> None:
    array = np.asfortranarray(np.random.default_rng(1).integers(0, 99, (3000, 4, 5)))
    path = tmp_path / "f.npy"
    np.save(path, array)
    for mmap in (False, True):
        dataset = ps.open(str(path), index="never", mmap=mmap)
        found = pa.Table.from_batches(list(dataset.scan()))
        assert values(found.column("data")) == array.tolist()
        numbers = np.random.default_rng(2).integers(0, 3000, 50)
        batch = dataset.take(numbers)
        assert batch["data"].to_numpy_ndarray().tolist() == array[numbers].tolist()


def test_flipped_and_cut_files_end_in_data_or_an_error() -> None:
    seeds = [
        npy(np.arange(6).reshape(2, 3)),
        (GOLDEN / "struct.npy").read_bytes(),
        npy(ARRAYS["text"]),
    ]
    rng = random.Random(7)
    for data in seeds:
        variants = [data[:cut] for cut in range(len(data))]
        for _ in range(1500):
            broken = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                broken[rng.randrange(len(data))] = rng.randrange(256)
            variants.append(bytes(broken))
        for variant in variants:
            try:
                table(variant).validate(full=True)
            except ps.PenstockError as error:
                assert error.file == "a.npy"


# -- writing --------------------------------------------------------------------------------------


def written(data: Any, tmp_path: Path, **options: Any) -> np.ndarray:
    path = str(tmp_path / "w.npy")
    ps.write(data, path, overwrite=True, **options)
    return np.load(path, allow_pickle=False)


def test_numpy_reads_what_is_written(tmp_path: Path) -> None:
    for array in ARRAYS.values():
        native = array.astype(array.dtype.newbyteorder("="))
        if array.dtype.kind in "SU" or 0 in array.shape:
            continue
        column = pa.array(native) if native.ndim == 1 else fixed_tensors(native)
        found = written(pa.table({"data": column}), tmp_path)
        assert found.shape == array.shape
        assert np.array_equal(found, native, equal_nan=array.dtype.kind in "fM")


def test_several_fields_become_a_structured_array(tmp_path: Path) -> None:
    table_ = pa.table(
        {"id": pa.array([1, 2], pa.int32()), "at": fixed_tensors(np.ones((2, 3), np.float16))}
    )
    found = written(table_, tmp_path)
    assert found.dtype == np.dtype([("id", "<i4"), ("at", "<f2", (3,))])
    assert found["id"].tolist() == [1, 2]
    dataset = ps.open(str(tmp_path / "w.npy"), index="never")
    assert dataset.schema.names == ["id", "at"]
    assert dataset.schema.field("at").type.shape == [3]


def test_text_needs_a_length(tmp_path: Path) -> None:
    table_ = pa.table({"name": ["é", "", "abc"], "raw": [b"x", b"yz", b""]})
    with pytest.raises(ps.SchemaError, match="text_length"):
        written(table_, tmp_path)
    assert not list(tmp_path.iterdir())
    found = written(table_, tmp_path, text_length=3)
    assert found["name"].tolist() == ["é", "", "abc"]
    assert found["raw"].tolist() == [b"x", b"yz", b""]
    assert pa.table(ps.open(str(tmp_path / "w.npy"))).to_pydict() == table_.to_pydict()
    with pytest.raises(ps.SchemaError, match="record 2, field 'name'"):
        written(table_, tmp_path, text_length=2)
    with pytest.raises(ps.SchemaError, match="NUL"):
        written(pa.table({"data": ["a\0"]}), tmp_path, text_length=3)


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.list_(pa.int8()),
        pa.decimal128(5, 2),
        pa.timestamp("s", "UTC"),
        pa.map_(pa.int8(), pa.int8()),
    ],
)
def test_what_an_array_cannot_hold_is_refused_before_the_first_byte(
    kind: Any, tmp_path: Path
) -> None:
    with pytest.raises(ps.SchemaError, match="field 'x'"):
        written(pa.table({"x": pa.array([], kind)}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_null_is_refused_with_its_record_but_a_time_that_is_none_is_kept(tmp_path: Path) -> None:
    numbers = pa.chunked_array([[1, 2], [3, None]])
    with pytest.raises(ps.SchemaError, match="record 3, field 'data'"):
        written(pa.table({"data": numbers}), tmp_path)
    assert not list(tmp_path.iterdir())
    times = pa.array([5, None], pa.timestamp("ms"))
    found = written(pa.table({"data": times}), tmp_path)
    assert found.tolist() == np.array([5, "NaT"], "M8[ms]").tolist()
    assert pa.table(ps.open(str(tmp_path / "w.npy")))["data"].to_pylist() == times.to_pylist()


def test_marked_bits_come_back_with_their_mark(tmp_path: Path) -> None:
    for kind, name in (
        (pa.uint16(), b"bfloat16"),
        (pa.fixed_shape_tensor(pa.float32(), [2]), b"complex64"),
    ):
        field = pa.field("data", kind, metadata={DTYPE_KEY: name})
        storage = (
            pa.array([1, 2], pa.uint16())
            if name == b"bfloat16"
            else fixed_tensors(np.ones((2, 2), "f4"))
        )
        written(pa.table([storage], pa.schema([field])), tmp_path)
        assert (
            ps.open(str(tmp_path / "w.npy")).schema.field("data").equals(field, check_metadata=True)
        )


def test_names_beyond_latin_1_make_version_3(tmp_path: Path) -> None:
    found = written(pa.table({"日": [1], "b": [2]}), tmp_path)
    assert found.dtype.names == ("日", "b")
    assert (tmp_path / "w.npy").read_bytes()[6] == 3


def test_the_header_is_read_by_its_parts() -> None:
    header = parse_header(
        lambda start, length: npy(np.zeros((2, 3), ">f4"))[start : start + length]
    )
    assert (header.dtype, header.fortran_order, header.shape, header.start) == (
        np.dtype(">f4"),
        False,
        (2, 3),
        128,
    )


def test_the_shared_folder_is_there() -> None:
    assert shared_path("specs", "golden", "neighbours", "f4.npy").exists()
