"""HDF5: what makes a table, types, random access by chunks, and what is never opened."""

from __future__ import annotations

import fcntl
import io
import json
import os
import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from memory_storage import MemoryStorage
from penstock.formats import hdf5_direct
from penstock.types import DTYPE_KEY, ImageType, fixed_tensors
from reading import SHARED, run_python

GOLDEN = SHARED / "specs" / "golden" / "neighbours" / "set.h5"
CORPUS = SHARED / "corpus" / "hdf5"


def made(tmp_path: Path, name: str = "a.h5", **arrays: Any) -> str:
    """A file of these datasets; a tuple is (data, keywords of create_dataset)."""
    path = str(tmp_path / name)
    with h5py.File(path, "w") as file:
        for key, value in arrays.items():
            data, options = value if isinstance(value, tuple) else (value, {})
            file.create_dataset(key.replace("__", "/"), data=data, **options)
    return path


def opened(path: str, **options: Any) -> ps.Dataset:
    return ps.open(path, index="never", **options)


def table(path: str, **options: Any) -> pa.Table:
    dataset = opened(path, **options)
    return pa.Table.from_batches(list(dataset.scan()), dataset.schema)


def array_of(column: Any) -> np.ndarray:
    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = found.chunk(0) if isinstance(found, pa.ChunkedArray) else found
    if hasattr(found, "to_numpy_ndarray"):
        return found.to_numpy_ndarray()
    return np.array(found.to_pylist())


def test_the_golden_file_reads_as_its_json_says() -> None:
    told = json.loads(GOLDEN.with_name("set.h5.expected.json").read_text())
    with pytest.raises(ps.SchemaError, match="not equally long") as caught:
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
    """Each dataset of each file on its own; those that end in an error say which and why."""
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
    # Refused: plug-in filters, null dataspaces, times, and text inside of structures.
    assert (read, refused) == (440, 67)


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


def test_a_file_is_told_without_its_name_also_behind_a_user_block(tmp_path: Path) -> None:
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


def test_a_group_that_is_its_own_ancestor_is_walked_once(tmp_path: Path) -> None:
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
def test_values_are_those_of_h5py_however_they_are_stored(store: str, tmp_path: Path) -> None:
    for name, data in DATA.items():
        options = dict(STORES[store])
        if options.pop("narrow", False):
            options["chunks"] = (options["chunks"], *(max(1, n // 2) for n in data.shape[1:]))
        elif options:
            options["chunks"] = (options["chunks"], *data.shape[1:])
        if "scaleoffset" in options and (data.dtype.kind == "f" or data.dtype.itemsize == 1):
            continue  # of bytes libhdf5 itself cannot read what it wrote
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
    from penstock.format import Options
    from penstock.storage import LocalStorage

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


def test_text_that_is_no_utf8_is_an_error_with_its_record(tmp_path: Path) -> None:
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
    assert run_python(code, str(GOLDEN)).strip() == "pip install penstock[hdf5]"
    # A file is not damaged because nothing here can read it.
    assert run_python(code.replace("open", "verify"), str(GOLDEN)).strip() == (
        "pip install penstock[hdf5]"
    )


def test_an_open_dataset_keeps_nobody_from_the_file(tmp_path: Path) -> None:
    ps.write({"x": [1, 2]}, tmp_path / "a.h5")
    ds = ps.open(tmp_path / "a.h5")
    assert len(ds) == 2
    with open(tmp_path / "a.h5", "rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert ds[1] == {"x": 2}


# -- what is refused ------------------------------------------------------------------------------


def canaries(folder: Path) -> dict[str, str]:
    """Files that lead to others. Each of the others is a pipe that nobody writes to: whoever opens
    one waits for ever."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    found: dict[str, str] = {}
    for kind in ("external link", "external storage", "virtual", "virtual, unlimited"):
        path = str(folder / f"{kind}.h5")
        found[kind] = path
        with h5py.File(path, "w") as file:
            if kind == "external link":
                file["x"] = h5py.ExternalLink(str(pipe), "/x")
            elif kind == "external storage":
                file.create_dataset("x", (4,), "i4", external=[(str(pipe), 0, 16)])
            elif kind == "virtual":
                layout = h5py.VirtualLayout((4,), "i4")
                layout[:] = h5py.VirtualSource(str(pipe), "x", (4,))
                file.create_virtual_dataset("x", layout)
            else:
                layout = h5py.VirtualLayout((4,), "i4", maxshape=(None,))
                source = h5py.VirtualSource(str(pipe), "x", (4,), maxshape=(None,))
                layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
                file.create_virtual_dataset("x", layout)
    return found


READ = """
import sys
import penstock as ps
for path in sys.argv[1:]:
    try:
        dataset = ps.open(path, index="never")
        print("rows", sum(batch.num_rows for batch in dataset.scan()))
    except ps.UnsupportedError as error:
        print("refused", error.message)
"""


def test_nothing_in_a_file_opens_another_one(tmp_path: Path) -> None:
    files = canaries(tmp_path)
    lines = run_python(READ, *files.values(), seconds=60).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("refused") for line in lines), lines
    assert ["link" in lines[0], "external files" in lines[1]] == [True, True]
    assert all("virtual" in line for line in lines[2:])


def test_soft_links_are_passed_over_also_those_that_leave(tmp_path: Path) -> None:
    path = made(tmp_path, x=np.arange(3))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with h5py.File(path, "a") as file:
        file["same"] = h5py.SoftLink("/x")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["out"] = h5py.ExternalLink(str(pipe), "/")
        file["leaves"] = h5py.SoftLink("/out/x")
    assert opened(path, datasets=["x", "same", "leaves", "dangling"][:1]).schema.names == ["x"]
    with pytest.raises(ps.UnsupportedError, match="external link"):
        opened(path)


def test_no_plug_in_is_loaded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libh5lz4.so")  # loading it would wait for ever
    files = [
        str(CORPUS / "jhdf" / "lz4_datasets.hdf5"),
        str(CORPUS / "pytables-tests" / "Tables_lzo1.h5"),
    ]
    code = f"import os; os.environ['HDF5_PLUGIN_PATH'] = {str(tmp_path)!r}\n" + READ
    lines = run_python(code, *files).splitlines()
    assert len(lines) == 2
    assert all("plug-in" in line for line in lines), lines


def test_values_that_were_never_written_are_bounded(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 40,), "i8", chunks=(1024,))
    with pytest.raises(ps.LimitError, match="member_bytes"):
        opened(path)


def test_a_structure_with_text_of_any_length_is_refused(tmp_path: Path) -> None:
    kind = np.dtype([("a", "i4"), ("t", h5py.string_dtype())])
    path = made(tmp_path, x=np.array([(1, "a")], kind))
    with pytest.raises(ps.UnsupportedError, match="inside of a structure"):
        opened(path)


@pytest.mark.parametrize("what", ["references", "lists of text", "raw"])
def test_what_arrow_has_nothing_for_is_refused(what: str, tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(2)
        if what == "references":
            file.create_dataset("r", (2,), h5py.ref_dtype)
        elif what == "lists of text":
            file.create_dataset("r", (2,), h5py.vlen_dtype(np.dtype("S3")))
    with pytest.raises(ps.UnsupportedError):
        opened(path, raw=what == "raw")


def small_file() -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("x", data=np.arange(12), chunks=(5,), compression="gzip", shuffle=True)
        file.create_dataset("y", data=np.arange(12.0))
        file.create_dataset("t", data=[f"n{n}" for n in range(12)])
        file["x"].attrs["unit"] = "m"
    return out.getvalue()


FLIPS = """
import random, sys
import penstock as ps
data, seed = open(sys.argv[1], "rb").read(), int(sys.argv[2])
rng = random.Random(seed)
path = sys.argv[1] + ".flipped"
for n in range(400):
    broken = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        broken[rng.randrange(len(data))] = rng.randrange(256)
    with open(path, "wb") as file:
        file.write(broken)
    try:
        dataset = ps.open(path, index="never", format="hdf5")
        for batch in dataset.scan(threads=1):
            batch.validate(full=True)
    except ps.PenstockError as error:
        assert error.file == path
print("done")
"""


def test_flipped_files_end_in_data_or_an_error(tmp_path: Path) -> None:
    """In processes of their own: what libhdf5 does with them is not ours to promise."""
    path = tmp_path / "a.h5"
    path.write_bytes(small_file())
    for seed in (1, 2):
        assert "done" in run_python(FLIPS, str(path), str(seed), megabytes=1500, seconds=120)


def test_a_file_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    data = small_file()
    path = tmp_path / "a.h5"
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        with pytest.raises(ps.FormatError) as caught:
            opened(str(path), format="hdf5")
        assert caught.value.file == str(path)


# -- writing --------------------------------------------------------------------------------------


def rich_table() -> pa.Table:
    storage = pa.array([b"x", b"yz", b""], pa.binary())
    return pa.table(
        {
            "obs/box": fixed_tensors(np.arange(12, dtype=np.float16).reshape(3, 2, 2)),
            "id": pa.array([1, 2, 3], pa.int16()),
            "on": pa.array([True, False, True]),
            "name": pa.array(["é", "", "abc"]),
            "long": pa.array(["a", "b", "c"], pa.large_string()),
            "image": pa.ExtensionArray.from_storage(ImageType("jpeg"), storage),
            "tokens": pa.array([[1], [], [2, 3]], pa.list_(pa.int32())),
            "bytes": pa.array([[1], [], [2, 3]], pa.list_(pa.uint8())),
            "label": pa.array(["cat", "dog", "cat"]).dictionary_encode(),
            "at": pa.array([1, None, 3], pa.timestamp("us")),
            "day": pa.array([1, 2, 3], pa.date32()),
            "inner": pa.array(
                [{"a": 1, "b": True}] * 3, pa.struct([("a", pa.int8()), ("b", pa.bool_())])
            ),
            "digest": pa.array([b"ab", b"cd", b"\0\0"], pa.binary(2)),
        },
        metadata={"maker": "a test"},
    )


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_what_is_written_reads_back_with_its_types(compression: str | None, tmp_path: Path) -> None:
    wanted = rich_table()
    path = str(tmp_path / "w.h5")
    ps.write(wanted, path, compression=compression)
    found = table(path)
    assert found.schema.names == wanted.schema.names
    for name in wanted.schema.names:
        assert found.schema.field(name).type == wanted.schema.field(name).type, name
    assert found.schema.metadata == wanted.schema.metadata
    assert found.to_pylist() == wanted.to_pylist()
    assert opened(path).take([2, 0, 0]).to_pylist() == wanted.take([2, 0, 0]).to_pylist()


def test_h5py_reads_what_is_written(tmp_path: Path) -> None:
    path = str(tmp_path / "w.h5")
    ps.write(rich_table(), path, compression="gzip")
    with h5py.File(path) as file:
        assert file["obs/box"].shape == (3, 2, 2)
        assert file["obs/box"].dtype == np.float16
        assert file["obs/box"].maxshape == (None, 2, 2)
        assert (file["id"].compression, file["id"].shuffle) == ("gzip", True)
        assert file["name"].asstr()[...].tolist() == ["é", "", "abc"]
        assert file["image"][1].tobytes() == b"yz"
        assert file["tokens"][2].tolist() == [2, 3]
        assert h5py.check_enum_dtype(file["label"].dtype) == {"cat": 0, "dog": 1}
        assert file["on"][...].tolist() == [True, False, True]
        assert file.attrs["maker"] == "a test"
        file_times = file["at"][...]
        assert file_times.dtype == np.dtype("M8[us]")


def test_a_dataset_can_grow_by_h5py(tmp_path: Path) -> None:
    path = str(tmp_path / "w.h5")
    ps.write({"x": np.arange(5)}, path)
    with h5py.File(path, "a") as file:
        file["x"].resize(7, axis=0)
        file["x"][5:] = [5, 6]
    assert table(path).to_pydict() == {"x": list(range(7))}


def test_options_are_those_of_the_datasets(tmp_path: Path) -> None:
    path = str(tmp_path / "w.h5")
    ps.write(
        {"x": np.arange(5000)}, path, compression="gzip", level=9, shuffle=False, chunk_records=100
    )
    with h5py.File(path) as file:
        one = file["x"]
        assert (one.chunks, one.compression_opts, one.shuffle) == ((100,), 9, False)
    for wrong in ({"compression": "zip"}, {"level": 10}, {"chunk_records": 0}):
        with pytest.raises(ValueError, match=r"is one of|0 to 9|at least 1"):
            ps.write({"x": [1]}, path, overwrite=True, **wrong)


def test_a_nul_in_text_names_its_record_and_leaves_nothing(tmp_path: Path) -> None:
    texts = ["fine"] * 700 + ["a\0b"]
    with pytest.raises(ps.SchemaError, match=r"record 700, field 'name': text with a NUL"):
        ps.write({"name": texts}, str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


def test_a_null_names_its_record(tmp_path: Path) -> None:
    for values in ([1.0] * 9 + [None], ["a"] * 9 + [None], [[1]] * 9 + [None]):
        with pytest.raises(ps.SchemaError, match=r"record 9, field 'x'.*missing"):
            ps.write(pa.table({"x": pa.array(values)}), str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.string()),
        pa.list_(pa.list_(pa.int8())),
        pa.decimal128(5, 2),
        pa.map_(pa.int8(), pa.int8()),
    ],
)
def test_what_hdf5_cannot_hold_is_refused_before_the_first_byte(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="field 'x'"):
        ps.write(pa.table({"x": pa.array([], kind)}), str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("names", [["a", "a/b"], ["a//b"], ["/a"], ["."], ["nul\0"]])
def test_names_that_are_no_paths_are_refused(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="rename"):
        ps.write({name: [1] for name in names}, str(tmp_path / "w.h5"))
    assert not list(tmp_path.iterdir())


def test_a_label_that_comes_later_is_refused(tmp_path: Path) -> None:
    parts = [pa.array(names).dictionary_encode() for names in (["a", "b"] * 40_000, ["c"])]
    with pytest.raises(ps.SchemaError, match="'c'"):
        ps.write(pa.table({"l": pa.chunked_array(parts)}), str(tmp_path / "w.h5"))


def test_marked_bits_keep_their_mark(tmp_path: Path) -> None:
    field = pa.field("x", pa.uint16(), metadata={DTYPE_KEY: b"bfloat16"})
    path = str(tmp_path / "w.h5")
    ps.write(pa.table([pa.array([1, 2], pa.uint16())], pa.schema([field])), path)
    assert opened(path).schema.field("x").metadata[DTYPE_KEY] == b"bfloat16"


def test_no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spool"))
    ps.write({"x": np.arange(100_000)}, str(tmp_path / "w.h5"))
    with pytest.raises(ps.SchemaError):
        ps.write({"x": ["a\0"]}, str(tmp_path / "v.h5"))
    assert os.listdir(tmp_path / "spool") == []


def test_random_files_have_other_bytes_only_for_other_records(tmp_path: Path) -> None:
    rng = random.Random(1)
    wanted = pa.table(
        {"x": [rng.random() for _ in range(70_000)], "t": [str(n) for n in range(70_000)]}
    )
    files = []
    for cut in (1000, 70_000, 777):
        path = tmp_path / f"{cut}.h5"
        ps.write(pa.Table.from_batches(wanted.to_batches(max_chunksize=cut)), str(path))
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]


def test_a_schema_too_large_for_an_attribute_is_refused_where_it_is_needed(tmp_path: Path) -> None:
    names = [f"{n:0150}" for n in range(300)]
    plain = {name: [1] for name in names}
    ps.write(plain, str(tmp_path / "w.h5"))
    assert table(str(tmp_path / "w.h5")).to_pydict() == plain
    large = pa.table({name: pa.array(["a"], pa.large_string()) for name in names})
    with pytest.raises(ps.SchemaError, match="larger than an attribute"):
        ps.write(large, str(tmp_path / "v.h5"))
    assert not (tmp_path / "v.h5").exists()


def test_a_record_in_more_chunks_than_the_file_has_bytes_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape=(4, 1 << 24), chunks=(1, 1), dtype="u1", compression="gzip")
    with pytest.raises(ps.LimitError, match="a record in 16777216 chunks"):
        ps.open(tmp_path / "a.h5")
