"""Reading npy: dtypes, orders and headers; NumPy is the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from npy_files import ARRAYS, GOLDEN, npy, opened, table, with_header

import penstock as ps
from penstock.columns.types import DTYPE_KEY
from penstock.formats.numpy.npy_header import parse_header
from reading import SHARED, shared_path

CORPUS = SHARED / "corpus" / "npy"


def values(column: Any) -> Any:
    """A column as nested lists, tensors too."""
    found = column.combine_chunks()
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    if not hasattr(found, "to_numpy_ndarray"):
        return found.to_pylist()
    if found.type.value_type == pa.bool_():  # for which pyarrow has no tensors
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


def test_a_file_is_recognised_without_its_name(tmp_path: Path) -> None:
    for number, path in enumerate([*corpus_files()[:5], GOLDEN / "struct.npy"]):
        nameless = tmp_path / f"file{number}"
        nameless.write_bytes(path.read_bytes())
        try:
            assert ps.open(str(nameless), index="never").shards[0].format == "npy"
        except ps.UnsupportedError as error:
            assert "no records" in str(error)


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


def test_padding_of_aligned_structures_is_not_a_field() -> None:
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


def test_fortran_order_is_read_from_where_its_values_are(tmp_path: Path) -> None:
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
