"""Reading HDF5: which datasets make a table, types, every kind of storage, random access by chunks."""

from __future__ import annotations

import fcntl
import io
import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
from hdf5_files import CORPUS, made, opened, table

import penstock as ps
from penstock.formats.hdf5 import _direct as hdf5_direct
from penstock.storage import MemoryStorage
from reading import SHARED, run_python

GOLDEN = SHARED / "specs" / "golden" / "neighbours" / "set.h5"


def array_of(column: Any) -> np.ndarray:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    if hasattr(found, "to_numpy_ndarray"):
        return found.to_numpy_ndarray()
    return np.array(found.to_pylist())


def test_the_golden_file_reads_as_its_json_says() -> None:
    told = json.loads(GOLDEN.with_name("set.h5.expected.json").read_text())
    with pytest.raises(ps.SchemaError, match="differ in length") as caught:
        opened(str(GOLDEN))
    assert "3: flag, names, x" in str(caught.value)
    found = table(str(GOLDEN), datasets=["x", "names", "flag"])
    assert [list(v) for v in found.column("x").to_pylist()] == told["x"]
    assert found.column("names").to_pylist() == told["names"]
    assert found.column("flag").to_pylist() == told["flag"]
    assert found.schema.field("flag").type == pa.bool_()
    assert json.loads(found.schema.field("x").metadata[b"mean"]) == told["x.attrs.mean"]
    jpegs = table(str(GOLDEN), datasets=["jpegs"]).column("jpegs")
    assert jpegs.type == pa.binary()
    assert [value.hex() for value in jpegs.to_pylist()] == told["jpegs_hex"]
    actions = table(str(GOLDEN), datasets=["data/demo_0"]).column("data/demo_0/actions")
    assert np.array_equal(array_of(actions), np.zeros((2, 7), np.float32))


def datasets_of(file: h5py.File) -> list[str]:
    found: list[str] = []

    def note(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found.append(name)

    file.visititems(note)
    return found


def test_the_corpus_reads_as_h5py_reads_it_or_says_why_not() -> None:
    """Each dataset of each file is read alone. If it cannot be read, the error names the dataset and the reason."""
    read = refused = 0
    paths = sorted(p for p in CORPUS.rglob("*") if p.suffix in (".h5", ".hdf5"))
    assert len(paths) > 70, f"the corpus is not at {CORPUS}"
    for path in paths:
        try:
            with h5py.File(path) as file:
                names = datasets_of(file)
        except OSError:
            with pytest.raises(ps.FormatError):
                opened(str(path))
            continue
        for name in names[:60]:
            try:
                dataset = opened(str(path), datasets=[name])
                found = pa.Table.from_batches(list(dataset.scan()), dataset.schema)
            except ps.PenstockError as error:
                assert error.file == str(path)
                refused += 1
                continue
            read += 1
            if not dataset.schema.names or not len(dataset):
                continue
            assert found.num_rows == len(dataset)
            check_values(path, name, found)
    # penstock refuses plug-in filters, null dataspaces, times, and text inside structures.
    assert (read, refused) == (442, 65)


def check_values(path: Path, name: str, found: pa.Table) -> None:
    column = found.column(name)
    with h5py.File(path) as file:
        assert len(file[name]) == len(column)
        dtype = file[name].dtype
        if dtype.kind not in "biuf" or dtype.metadata or dtype.subdtype:
            return
        wanted = file[name][...]
    if column.type == pa.bool_() or wanted.size > 100_000:
        return
    assert np.array_equal(array_of(column), wanted, equal_nan=dtype.kind == "f"), (path, name)


def test_a_file_is_recognised_without_its_name_also_after_a_user_block(tmp_path: Path) -> None:
    for block in (0, 512, 2048):
        path = tmp_path / f"file{block}"
        with h5py.File(path, "w", userblock_size=block) as file:
            file["x"] = np.arange(4)
        dataset = opened(str(path))
        assert dataset.shards[0].format == "hdf5"
        assert table(str(path)).to_pydict() == {"x": [0, 1, 2, 3]}


def test_hdf5_inside_of_another_file_is_not_taken_for_the_file() -> None:
    fmt = next(f for f in ps.formats.FORMATS if f.info.name == "hdf5")
    assert fmt.sniff(GOLDEN.read_bytes()[:4096], 9999)
    assert not fmt.sniff(bytes(512) + GOLDEN.read_bytes()[:3000], 9999)


# -- what makes a table ---------------------------------------------------------------------------


def test_groups_are_names_joined_and_single_values_are_metadata(tmp_path: Path) -> None:
    path = made(
        tmp_path, x=np.arange(3), data__obs__y=np.ones((3, 2)), rate=np.float64(0.5), note="hi"
    )
    with h5py.File(path, "a") as file:
        file.attrs["maker"] = "me"
        file.attrs["sizes"] = np.array([1, 2])
        file["x"].attrs["unit"] = "m"
        file["empty"] = h5py.Empty("f4")
    dataset = opened(path)
    assert dataset.schema.names == ["data/obs/y", "x"]
    metadata = {b"maker": b"me", b"sizes": b"[1, 2]", b"rate": b"0.5", b"note": b"hi"}
    assert dataset.schema.metadata == metadata
    assert dataset.schema.field("x").metadata == {b"unit": b"m"}


def test_datasets_choose_by_name_or_group(tmp_path: Path) -> None:
    path = made(tmp_path, a=np.arange(2), g__b=np.arange(3), g__c=np.arange(3), h__d=np.arange(4))
    with pytest.raises(ps.SchemaError, match="datasets=") as caught:
        opened(path)
    assert "2: a; 3: g/b, g/c; 4: h/d" in str(caught.value)
    assert opened(path, datasets=["g"]).schema.names == ["g/b", "g/c"]
    assert opened(path, datasets=["/h/d"]).schema.names == ["h/d"]
    with pytest.raises(ps.SchemaError, match="no such dataset"):
        opened(path, datasets=["nowhere"])
    with pytest.raises(TypeError, match="list"):
        opened(path, datasets="a")


def test_a_group_that_contains_itself_is_visited_once(tmp_path: Path) -> None:
    path = made(tmp_path, g__x=np.arange(3))
    with h5py.File(path, "a") as file:
        file["g/up"] = file["/"]
        file["g/again"] = file["g"]
    assert opened(path).schema.names == ["g/x"]


# -- values ---------------------------------------------------------------------------------------

DATA: dict[str, np.ndarray] = {
    **{
        f"{order}{kind}": np.arange(600).reshape(100, 6).astype(f"{order}{kind}")
        for order in "<>"
        for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
    },
    "one axis": np.arange(100) * 7,
    "four axes": np.arange(100 * 3 * 4 * 5).reshape(100, 3, 4, 5),
}
STORES: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": 7},
    "gzip": {"chunks": 7, "compression": "gzip"},
    "gzip and shuffle": {"chunks": 16, "compression": "gzip", "shuffle": True},
    "shuffle": {"chunks": 10, "shuffle": True},
    "lzf": {"chunks": 7, "compression": "lzf"},
    "fletcher32": {"chunks": 7, "fletcher32": True},
    "scaleoffset": {"chunks": 10, "scaleoffset": 0},
    "narrow chunks": {"chunks": 7, "narrow": True, "compression": "gzip", "shuffle": True},
}


@pytest.mark.parametrize("store", STORES)
def test_values_equal_h5pys_however_they_are_stored(store: str, tmp_path: Path) -> None:
    for name, data in DATA.items():
        options = dict(STORES[store])
        if options.pop("narrow", False):
            options["chunks"] = (options["chunks"], *(max(1, n // 2) for n in data.shape[1:]))
        elif options:
            options["chunks"] = (options["chunks"], *data.shape[1:])
        if "scaleoffset" in options and (data.dtype.kind == "f" or data.dtype.itemsize == 1):
            continue  # libhdf5 itself cannot read what it wrote for bytes
        path = made(tmp_path, x=(data, options))
        assert np.array_equal(array_of(table(path).column("x")), data), name
        numbers = np.random.default_rng(1).integers(0, 100, 30)
        taken = opened(path).take(numbers)["x"]
        assert np.array_equal(array_of(taken), data[numbers]), name
        os.unlink(path)


def test_chunks_that_were_never_written_hold_the_fill_value(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset(
            "x", (30,), "i4", chunks=(10,), fillvalue=7, compression="gzip"
        )
        dataset[10:20] = np.arange(10)
        file.create_dataset("y", (30,), "f4", fillvalue=0.5)
    wanted = [7] * 10 + list(range(10)) + [7] * 10
    assert table(path).to_pydict() == {"x": wanted, "y": [0.5] * 30}
    assert opened(path).take([29, 12])["x"].to_pylist() == [7, 2]


def test_a_filter_left_out_of_one_chunk_is_left_out(tmp_path: Path) -> None:
    path = made(
        tmp_path, x=(np.arange(20), {"chunks": (10,), "compression": "gzip", "shuffle": True})
    )
    with h5py.File(path, "a") as file:
        file["x"].id.write_direct_chunk((10,), np.arange(10, 20).tobytes(), filter_mask=3)
    assert table(path).column("x").to_pylist() == list(range(20))


def test_a_take_reads_each_chunk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.arange(1000)
    path = made(tmp_path, x=(data, {"chunks": (100,), "compression": "gzip"}))
    seen: list[int] = []
    original = hdf5_direct.ChunkedArray._unpacked

    def counting(self: Any, places: np.ndarray, threads: int) -> np.ndarray:
        seen.extend(places[:, 0].tolist())
        return original(self, places, threads)

    monkeypatch.setattr(hdf5_direct.ChunkedArray, "_unpacked", counting)
    dataset = opened(path)
    assert dataset.take([150, 901, 101, 150, 199, 0])["x"].to_pylist() == [
        150,
        901,
        101,
        150,
        199,
        0,
    ]
    assert len(seen) == len(set(seen)) == 3
    seen.clear()
    assert sum(batch.num_rows for batch in dataset.scan()) == 1000
    assert len(seen) == len(set(seen)) == 10


def test_penstocks_chunks_are_whole_chunks_of_hdf5(tmp_path: Path) -> None:
    data = np.zeros((10_000, 300), np.float32)
    path = made(
        tmp_path, x=(data, {"chunks": (700, 300)}), y=(np.arange(10_000), {"chunks": (350,)})
    )
    fmt = next(f for f in ps.formats.FORMATS if f.info.name == "hdf5")
    from penstock.contract.format import Options
    from penstock.storage.local import LocalStorage

    reader = fmt.open(LocalStorage().source(path), Options())
    firsts = [chunk.first_record for chunk in reader.chunks()]
    assert len(firsts) > 1
    assert all(first % 700 == 0 for first in firsts)
    reader.close()


def test_text_lists_and_names_have_their_meaning(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    ragged = np.empty(3, object)
    for n in range(3):
        ragged[n] = np.arange(n, dtype=np.int16)
    jpegs = np.empty(3, object)
    for n in range(3):
        jpegs[n] = np.frombuffer(b"x" * n, np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("text", data=["é", "", "abc"], dtype=h5py.string_dtype())
        file.create_dataset("fixed", data=np.array([b"ab", b"c", b""]))
        file.create_dataset(
            "utf8", data=np.array(["é".encode(), b"c", b""], h5py.string_dtype("utf-8", 4))
        )
        file.create_dataset("ragged", data=ragged, dtype=h5py.vlen_dtype(np.int16))
        file.create_dataset("jpegs", data=jpegs, dtype=h5py.vlen_dtype(np.uint8))
        names = h5py.enum_dtype({"dog": 7, "cat": -1}, basetype="i2")
        file.create_dataset("label", data=np.array([7, -1, 7], "i2"), dtype=names)
        file.create_dataset("flag", data=np.array([True, False, True]))
        file.create_dataset("pair", data=np.array([(1, 2.5)] * 3, [("a", "i4"), ("b", "f8")]))
        file.create_dataset(
            "time", data=np.array([1, 2, 3], "M8[ms]").astype(h5py.opaque_dtype("M8[ms]"))
        )
    found = table(path)
    assert found.to_pydict() == {
        "fixed": ["ab", "c", ""],
        "flag": [True, False, True],
        "jpegs": [b"", b"x", b"xx"],
        "label": ["dog", "cat", "dog"],
        "pair": [{"a": 1, "b": 2.5}] * 3,
        "ragged": [[], [0], [0, 1]],
        "text": ["é", "", "abc"],
        "time": pa.array([1, 2, 3], pa.timestamp("ms")).to_pylist(),
        "utf8": ["é", "c", ""],
    }
    assert found.schema.field("label").type == pa.dictionary(pa.int16(), pa.string())
    assert opened(path).take([2, 0]).to_pylist() == [found.to_pylist()[2], found.to_pylist()[0]]


def test_a_number_without_a_name_is_an_error_with_its_record(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "l", data=np.array([0, 1, 5]), dtype=h5py.enum_dtype({"a": 0, "b": 1}, "i8")
        )
    with pytest.raises(ps.FormatError, match="record 2, field 'l'"):
        table(path)


def test_text_that_is_not_utf8_is_an_error_with_its_record(tmp_path: Path) -> None:
    path = made(tmp_path, t=np.array([b"ok", b"\xff"]))
    with pytest.raises(ps.FormatError, match="record 1, field 't'"):
        table(path)


def test_a_file_of_any_storage_is_read() -> None:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("x", data=np.arange(50), chunks=(9,), compression="gzip")
        file.create_dataset("t", data=[f"n{n}" for n in range(50)])
    storage = MemoryStorage({"a.h5": out.getvalue()})
    dataset = ps.open("a.h5", storage=storage, index="never")
    assert dataset.take([49, 3]).to_pydict() == {"t": ["n49", "n3"], "x": [49, 3]}
    assert sum(batch.num_rows for batch in dataset.scan()) == 50


def test_without_h5py_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["h5py"] = None
import penstock as ps
try:
    ps.open(sys.argv[1])
except ps.UnsupportedError as error:
    print(error.hint)
"""
    assert run_python(code, str(GOLDEN)).strip() == "pip install 'penstock[hdf5]'"
    # A file that nothing here can read is not necessarily damaged.
    assert run_python(code.replace("open", "verify"), str(GOLDEN)).strip() == (
        "pip install 'penstock[hdf5]'"
    )


def test_an_open_dataset_does_not_lock_the_file(tmp_path: Path) -> None:
    ps.write({"x": [1, 2]}, tmp_path / "a.h5")
    ds = ps.open(tmp_path / "a.h5")
    assert len(ds) == 2
    with open(tmp_path / "a.h5", "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert ds[1] == {"x": 2}


@pytest.mark.parametrize("size", [1, 2, 300])
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_lists_of_fixed_strings(tmp_path: Path, size: int, encoding: str) -> None:
    path = tmp_path / "v.h5"
    given = [[b"ab"[:size], b"c"], [], [b""], [b"x" * size] * 5]
    inner = h5py.string_dtype(encoding, size)
    with h5py.File(path, "w") as file:
        lists = file.create_dataset("t", (4,), dtype=h5py.vlen_dtype(inner))
        for record, value in enumerate(given):
            lists[record] = np.array(value, inner)
    ds = ps.open(path)
    assert ds.schema.field("t").type.value_type in (pa.string(), pa.binary())
    found = [[v.encode() if isinstance(v, str) else v for v in row["t"]] for row in ds]
    assert found == given
    assert ds.take([3, 0])["t"].to_pylist() == [row["t"] for row in (ds[3], ds[0])]


def test_a_string_in_a_list_that_is_not_text_names_its_record(tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    inner = h5py.string_dtype("utf-8", 2)
    with h5py.File(path, "w") as file:
        lists = file.create_dataset("t", (3,), dtype=h5py.vlen_dtype(inner))
        for record, value in enumerate([[b"a", b"b"], [], [b"c", b"\xff\xfe"]]):
            lists[record] = np.array(value, inner)
    try:
        list(ps.open(path))
    except ps.FormatError as error:
        assert error.record == 2
    else:
        assert ps.open(path).schema.field("t").type == pa.list_(pa.binary())


# -- strings of fixed length, and images in rows --------------------------------------------------


def test_strings_of_fixed_length_are_text_or_on_request_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    many = np.array([[b"a", b"\xfe"], [b"", b"c"], [b"d", b"e"]], "S3")
    with h5py.File(path, "w") as file:
        file["fixed"] = np.array([b"ab", b"\xff\xfe", b"c\0d"], "S10")
        file["free"] = np.array([b"x", b"\xff", b""], h5py.string_dtype())
        file["many"] = many
        file["text"] = np.array([b"q", b"r", b"s"], "S1")
    with pytest.raises(ps.FormatError, match="not UTF-8"):
        list(ps.open(path))
    types = dict.fromkeys(("fixed", "free", "many"), "binary")
    ds = ps.open(path, types=types)
    assert ds.to_table().to_pydict() == {
        "fixed": [b"ab", b"\xff\xfe", b"c\0d"],
        "free": [b"x", b"\xff", b""],
        "many": many.tolist(),
        "text": ["q", "r", "s"],
    }
    assert ds.take([2, 0]).column("fixed").to_pylist() == [b"c\0d", b"ab"]


@pytest.mark.parametrize("ending", ["h5", "npz"])
def test_images_in_rows_filled_up_with_zeros_are_decoded(tmp_path: Path, ending: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 20, 30, 3), np.uint8)
    files = ps.encode_images(pixels, "jpeg").to_pylist()
    rows = np.zeros((4, max(map(len, files)) + 9), np.uint8)
    for row, data in zip(rows, files, strict=True):
        row[: len(data)] = np.frombuffer(data, np.uint8)
    path = tmp_path / f"a.{ending}"
    if ending == "npz":
        np.savez(path, image=rows)
    else:
        with h5py.File(path, "w") as file:
            file["image"] = rows
    (batch,) = ps.Loader(ps.open(path), 4, decode={"image": ps.Image()})
    np.testing.assert_array_equal(batch["image"], ps.decode_images(pa.array(files)))
