"""npz: archives, what makes a table, hostile zips, and columns that take several arrays."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from memory_storage import MemoryStorage
from penstock.formats import npz_members
from penstock.types import DTYPE_KEY, ImageType, fixed_tensors
from reading import SHARED, run_python

GOLDEN = SHARED / "specs" / "golden" / "neighbours"
CORPUS = SHARED / "corpus" / "npy"


def npz(compressed: bool = False, **arrays: Any) -> bytes:
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def opened(data: bytes, **options: Any) -> ps.Dataset:
    storage = MemoryStorage({"a.npz": data})
    return ps.open("a.npz", storage=storage, index="never", format="npz", **options)


def table(data: bytes, **options: Any) -> pa.Table:
    dataset = opened(data, **options)
    return pa.Table.from_batches(list(dataset.scan()), dataset.schema)


def member(name: str = "x", array: Any = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.arange(5) if array is None else array)
    return out.getvalue()


def test_golden_files_read_as_their_json_says() -> None:
    told = json.loads((GOLDEN / "deflated.npz.expected.json").read_text())
    found = pa.table(ps.open(str(GOLDEN / "deflated.npz"), index="never"))
    assert found.to_pydict() == {"arr_0": told["arr_0"]}
    told = json.loads((GOLDEN / "two.npz.expected.json").read_text())
    with pytest.raises(ps.SchemaError, match="not equally long") as caught:
        ps.open(str(GOLDEN / "two.npz"), index="never")
    assert "3: x" in str(caught.value)
    for name in ("x", "grp/y"):
        dataset = ps.open(str(GOLDEN / "two.npz"), index="never", arrays=[name])
        column = pa.table(dataset).column(name)
        assert [list(v) if name != "x" else v for v in column.to_pylist()] == told[name]


def test_the_corpus_reads_as_numpy_reads_it_or_says_why_not() -> None:
    paths = sorted(CORPUS.rglob("*.npz"))
    assert len(paths) >= 9, f"the corpus is not at {CORPUS}"
    seen = 0
    for path in paths:
        oracle = np.load(path, allow_pickle=False)
        for name in oracle.files:
            try:
                wanted = oracle[name]
            except ValueError:
                with pytest.raises(ps.UnsupportedError, match="pickle"):
                    ps.open(str(path), index="never", arrays=[name])
                continue
            if not wanted.shape or wanted.dtype.itemsize == 16:
                continue
            dataset = ps.open(str(path), index="never", arrays=[name])
            found = dataset.take(list(range(len(dataset)))).column(0) if len(dataset) else []
            got = found.to_numpy_ndarray() if hasattr(found, "to_numpy_ndarray") else found
            assert np.array_equal(np.asarray(got), wanted), (path, name)
            seen += 1
    assert seen > 20


def test_long_doubles_come_as_their_bits() -> None:
    path = CORPUS / "scipy-tests" / "fftw_longdouble_ref.npz"
    dataset = ps.open(str(path), index="never", arrays=["dct_1_2"])
    field = dataset.schema.field("dct_1_2")
    assert (field.type, field.metadata[DTYPE_KEY]) == (pa.binary(16), b"float128")


@pytest.mark.parametrize("compressed", [False, True])
def test_equal_arrays_are_a_table_and_single_values_its_metadata(compressed: bool) -> None:
    images = np.random.default_rng(1).integers(0, 256, (3000, 8, 8), np.uint8)
    labels = np.arange(3000)
    data = npz(compressed, images=images, labels=labels, version=np.array(7), name="mnist")
    dataset = opened(data)
    assert dataset.schema.names == ["images", "labels"]
    assert dataset.schema.metadata == {b"version": b"7", b"name": b"mnist"}
    found = table(data)
    assert found.column("labels").to_pylist() == labels.tolist()
    assert found.column("images").combine_chunks().to_numpy_ndarray().tolist() == images.tolist()
    numbers = np.random.default_rng(2).integers(0, 3000, 99)
    batch = dataset.take(numbers)
    assert batch["images"].to_numpy_ndarray().tolist() == images[numbers].tolist()


def test_only_the_records_of_a_stored_member_are_read() -> None:
    data = npz(x=np.zeros((10_000, 100)), y=np.arange(10_000))
    storage = MemoryStorage({"a.npz": data})
    read = 0
    original = storage.source

    def counting(path: str, *, mmap: bool = False) -> Any:
        source = original(path, mmap=mmap)
        gather, plain = source.gather, source.read

        def count_gather(starts: Any, lengths: Any) -> Any:
            nonlocal read
            read += sum(pa.array(lengths).to_pylist())
            return gather(starts, lengths)

        def count_read(start: int, length: int) -> Any:
            nonlocal read
            read += min(length, len(data) - start)
            return plain(start, length)

        source.gather, source.read = count_gather, count_read
        return source

    storage.source = counting  # type: ignore[method-assign]
    dataset = ps.open("a.npz", storage=storage, index="never")
    assert dataset.take([9, 5000])["y"].to_pylist() == [9, 5000]
    assert read < 200_000


def test_arrays_choose_what_makes_the_table() -> None:
    data = npz(a=np.arange(3), b=np.arange(4), c=np.arange(3))
    assert table(data, arrays=["c", "a"]).schema.names == ["c", "a"]
    with pytest.raises(ps.SchemaError, match="no such array"):
        opened(data, arrays=["d"])
    with pytest.raises(TypeError, match="list of names"):
        opened(data, arrays="a")
    with pytest.raises(TypeError, match="arrays"):
        opened(data, array=["a"])


def test_objects_are_refused_but_other_arrays_are_not() -> None:
    out = io.BytesIO()
    np.savez(out, a=np.arange(2), o=np.array([{}, []], object))
    with pytest.raises(ps.UnsupportedError, match=r"field 'o'.*pickle"):
        opened(out.getvalue())
    assert table(out.getvalue(), arrays=["a"]).to_pydict() == {"a": [0, 1]}


def test_members_that_are_no_arrays_are_passed_over_and_names_touch_no_files(
    tmp_path: Path,
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../escape.npy", member())
        archive.writestr("/etc/x.npy", member())
        archive.writestr("readme.txt", b"hello")
    path = tmp_path / "deep" / "er"
    path.mkdir(parents=True)
    (path / "a.npz").write_bytes(out.getvalue())
    found = pa.table(ps.open(str(path / "a.npz"), index="never"))
    assert found.schema.names == ["../../escape", "/etc/x"]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.npz", "deep", "er"]


def test_zip64_archives_are_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("x.npy", "w", force_zip64=True) as file:
        file.write(member())
    assert table(out.getvalue()).to_pydict() == {"x": [0, 1, 2, 3, 4]}
    # The directory's own numbers in 64 bits, as of an archive beyond 4 GiB.
    data = bytearray(npz(x=np.arange(3)))
    end = data.rindex(b"PK\5\6")
    count, _, size, start = struct.unpack_from("<HHII", data, end + 8)
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert table(bytes(data[:end]) + wide + locator + last).to_pydict() == {"x": [0, 1, 2]}


def zipped(**how: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how.pop("method", zipfile.ZIP_STORED)) as archive:
        for name, data in how.pop("members", {"x.npy": member()}).items():
            archive.writestr(name, data)
    return out.getvalue()


def changed(data: bytes, magic: bytes, offset: int, new: bytes) -> bytes:
    at = data.index(magic) + offset
    return data[:at] + new + data[at + len(new) :]


HOSTILE = {
    "another method": zipped(method=zipfile.ZIP_BZIP2),
    "encrypted": changed(zipped(), b"PK\1\2", 8, b"\1"),
    "a name of two kinds": changed(zipped(), b"PK\1\2", 46, b"y"),
    "a size too large": changed(zipped(), b"PK\1\2", 20, b"\xff\xff\0\0\xff\xff\0\0"),
    "stored in two sizes": changed(zipped(), b"PK\1\2", 24, b"\1"),
    "a place elsewhere": changed(zipped(), b"PK\1\2", 42, b"\7"),
    "a place beyond the file": changed(zipped(), b"PK\1\2", 42, b"\xff\xff\xff\x7f"),
    "a directory beyond the file": changed(zipped(), b"PK\5\6", 16, b"\xff\xff\xff\x7f"),
    "a directory of no size": changed(zipped(), b"PK\5\6", 12, b"\0\0\0\0"),
    "more members than there are": changed(zipped(), b"PK\5\6", 8, b"\xff\0\xff\0"),
    "several disks": changed(zipped(), b"PK\5\6", 4, b"\1"),
    "a member of no npy": zipped(members={"x.npy": b"not an array"}),
    "an empty member": zipped(members={"x.npy": b""}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_ends_in_an_error(name: str) -> None:
    with pytest.raises((ps.FormatError, ps.UnsupportedError)) as caught:
        table(HOSTILE[name])
    assert caught.value.file == "a.npz"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", member())
        archive.writestr("x.npy", member())
    with pytest.raises(ps.FormatError, match="two members"):
        opened(out.getvalue())


def test_members_that_share_bytes_are_refused() -> None:
    data = zipped(members={"x.npy": member(), "y.npy": member()})
    directory = data.index(b"PK\1\2")
    first = data[directory : directory + 46 + 5]
    end = data.rindex(b"PK\5\6")
    twice = first + first.replace(b"x.npy", b"z.npy")
    body = bytearray(data[:directory] + twice + data[end:])
    struct.pack_into("<I", body, body.rindex(b"PK\5\6") + 12, len(twice))
    with pytest.raises(ps.FormatError):
        opened(bytes(body))


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    """A member of 100 KB that inflates to 100 MB of zeros: more than its header's shape says."""
    plain = member() + bytes(100 << 20)
    bomb = zipped(members={"x.npy": plain}, method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 200_000
    with pytest.raises(ps.LimitError, match="member_bytes"):
        opened(bomb, limits={"member_bytes": 1 << 20})
    lying = changed(bomb, b"PK\1\2", 24, struct.pack("<I", len(member())))
    with pytest.raises(ps.FormatError, match="more bytes than it says"):
        table(lying)


def test_inflated_members_go_to_a_file_where_they_are_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(npz_members, "MEMORY_BYTES", 1000)
    array = np.random.default_rng(1).standard_normal((5000, 3))
    found = table(npz(True, x=array, y=np.arange(5000)))
    assert found.column("x").combine_chunks().to_numpy_ndarray().tolist() == array.tolist()


ANONYMOUS = """
import re, sys
import penstock as ps

def held():
    return int(re.search(r"RssAnon:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024

dataset = ps.open(sys.argv[1], index="never")
before, most, records = held(), 0, 0
for batch in dataset.scan(threads=1):
    most, records = max(most, held()), records + batch.num_rows
print(records, int(most - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_deflated_member_is_kept_in_a_file_not_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    np.savez_compressed(path, x=np.zeros((800, 1 << 14), np.float64))  # 100 MiB
    records, megabytes = run_python(ANONYMOUS, str(path)).split()
    assert records == "800"
    assert int(megabytes) < 60


def test_a_wrong_checksum_of_a_deflated_member_is_an_error() -> None:
    data = npz(True, x=np.arange(100))
    crc = zlib.crc32(member(array=np.arange(100)))
    broken = data.replace(struct.pack("<I", crc), struct.pack("<I", crc ^ 1))
    assert broken != data
    with pytest.raises(ps.ChecksumError, match=r"'x\.npy'"):
        table(broken)


def test_flipped_and_cut_archives_end_in_data_or_an_error() -> None:
    rng = random.Random(5)
    for data in (npz(x=np.arange(4), y=np.ones((4, 2))), npz(True, x=np.arange(40)), lists_file()):
        for cut in range(len(data)):
            with pytest.raises(ps.FormatError):
                opened(data[:cut])
        for _ in range(1500):
            broken = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                broken[rng.randrange(len(data))] = rng.randrange(256)
            try:
                table(bytes(broken)).validate(full=True)
            except ps.PenstockError as error:
                assert error.file == "a.npz"


# -- columns of several arrays --------------------------------------------------------------------


def lists_file() -> bytes:
    return npz(
        **{
            "tokens#offsets": np.array([0, 2, 2, 5]),
            "tokens#values": np.arange(5, dtype=np.int32),
            "name#offsets": np.array([0, 1, 3, 3]),
            "name#utf8": np.frombuffer("aé".encode(), np.uint8),
            "label#codes": np.array([1, 0, 1], np.uint8),
            "label#names#offsets": np.array([0, 3, 6]),
            "label#names#utf8": np.frombuffer(b"catdog", np.uint8),
            "score": np.array([0.5, 0.0, 1.5]),
            "score#valid": np.array([True, False, True]),
        }
    )


WANTED = {
    "tokens": [[0, 1], [], [2, 3, 4]],
    "name": ["a", "é", ""],
    "label": ["dog", "cat", "dog"],
    "score": [0.5, None, 1.5],
}


def test_arrays_that_belong_together_are_one_column() -> None:
    assert table(lists_file()).to_pydict() == WANTED
    taken = opened(lists_file()).take([2, 0, 2])
    assert taken.to_pydict() == {name: [v[2], v[0], v[2]] for name, v in WANTED.items()}


def test_names_that_only_look_so_stay_arrays() -> None:
    found = table(
        npz(**{"a#offsets": np.arange(3), "b#x": np.arange(3), "c#valid": np.ones(3, bool)})
    )
    assert found.schema.names == ["a#offsets", "b#x", "c#valid"]


@pytest.mark.parametrize("offsets", [[0, 3, 2, 5], [0, 2, 4, 6], [-1, 2, 3, 5], [0, 1 << 62, 2, 3]])
def test_offsets_that_fall_or_point_beyond_are_refused(offsets: list[int]) -> None:
    data = npz(**{"t#offsets": np.array(offsets), "t#values": np.arange(5)})
    with pytest.raises(ps.FormatError, match="field 't'"):
        table(data)


def test_a_label_without_a_name_is_refused() -> None:
    data = npz(**{"l#codes": np.array([0, 5]), "l#names": np.array(["a", "b"])})
    with pytest.raises(ps.FormatError, match="record 1, field 'l'"):
        table(data)


def test_text_that_is_no_utf8_is_refused() -> None:
    data = npz(**{"t#offsets": np.array([0, 1]), "t#utf8": np.array([0xFF], np.uint8)})
    with pytest.raises(ps.FormatError, match="UTF-8"):
        table(data)


# -- writing --------------------------------------------------------------------------------------


def rich_table() -> pa.Table:
    images = pa.ExtensionArray.from_storage(
        ImageType("jpeg"), pa.array([b"x", b"yz", b""], pa.binary())
    )
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int16()),
            "maybe": pa.array([1.5, None, 2.5]),
            "box": fixed_tensors(np.arange(12, dtype=np.float16).reshape(3, 2, 2)),
            "on": pa.array([True, None, False]),
            "name": pa.array(["é", None, ""]),
            "long": pa.array(["a", "b", "c"], pa.large_string()),
            "image": images,
            "tokens": pa.array([[1], None, [2, 3]], pa.list_(pa.int32())),
            "words": pa.array([["a", "bé"], [], [None]], pa.list_(pa.string())),
            "deep": pa.array([[[1, 2], []], None, [[3]]], pa.list_(pa.list_(pa.int8()))),
            "label": pa.array(["cat", "dog", "cat"]).dictionary_encode(),
            "at": pa.array([1, None, 3], pa.timestamp("us")),
            "inner": pa.array(
                [{"a": 1, "b": True}] * 3, pa.struct([("a", pa.int8()), ("b", pa.bool_())])
            ),
        },
        metadata={"maker": "a test"},
    )


@pytest.mark.parametrize("compression", [None, "deflate"])
def test_what_is_written_reads_back_with_its_types(compression: str | None, tmp_path: Path) -> None:
    wanted = rich_table()
    path = str(tmp_path / "w.npz")
    ps.write(wanted, path, compression=compression)
    dataset = ps.open(path, index="never")
    found = pa.Table.from_batches(list(dataset.scan()), dataset.schema)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert found.to_pylist() == wanted.to_pylist()
    numbers = [2, 0, 1, 1]
    assert dataset.take(numbers).to_pylist() == wanted.take(numbers).to_pylist()
    with np.load(path, allow_pickle=False) as arrays:
        assert arrays["id"].tolist() == [1, 2, 3]
        assert arrays["tokens#offsets"].tolist() == [0, 1, 1, 3]
        assert arrays["tokens#values"].tolist() == [1, 2, 3]
        assert all(arrays[name] is not None for name in arrays.files)
    assert zipfile.ZipFile(path).testzip() is None


def test_plain_columns_make_a_plain_archive(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    ps.write({"x": np.arange(5), "y": np.ones(5, np.float32)}, str(path))
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["x.npy", "y.npy"]
        assert archive.comment == b""
    data = path.read_bytes()
    for name in (b"x", b"y"):
        assert data.index(b"\x93NUMPY", data.index(name + b".npy")) % 64 == 0


def test_batches_with_other_dictionaries_share_their_names(tmp_path: Path) -> None:
    parts = [pa.array(names).dictionary_encode() for names in (["a", "b"], ["c", "a"], ["b", "c"])]
    ps.write(pa.table({"l": pa.chunked_array(parts)}), str(tmp_path / "w.npz"))
    found = pa.table(ps.open(str(tmp_path / "w.npz"), index="never"))
    assert found.column("l").to_pylist() == ["a", "b", "c", "a", "b", "c"]


@pytest.mark.parametrize("name", ["a#offsets", "x#utf8", "nul\0"])
def test_names_that_npz_keeps_are_refused_before_the_first_byte(name: str, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="rename"):
        ps.write({name: [1]}, str(tmp_path / "w.npz"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind", [pa.decimal128(5, 2), pa.map_(pa.int8(), pa.int8()), pa.time32("s")]
)
def test_what_no_arrays_hold_is_refused_before_the_first_byte(kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="field 'x'"):
        ps.write(pa.table({"x": pa.array([], kind)}), str(tmp_path / "w.npz"))
    assert not list(tmp_path.iterdir())


def test_text_length_writes_numpys_own_text(tmp_path: Path) -> None:
    path = str(tmp_path / "w.npz")
    ps.write({"name": ["a", "bcd"]}, path, text_length=3)
    assert np.load(path)["name"].dtype == np.dtype("<U3")
    assert pa.table(ps.open(path)).to_pydict() == {"name": ["a", "bcd"]}


def test_no_temporary_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "spool"))
    (tmp_path / "spool").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    ps.write({"x": np.arange(100_000)}, str(tmp_path / "w.npz"))
    assert os.listdir(tmp_path / "spool") == []


def archive(packed: bytes, crc: int, size: int) -> bytes:
    """A zip archive of one deflated member x.npy, whatever its bytes are."""
    name = b"x.npy"
    facts = struct.pack("<IIIHH", crc, len(packed), size, len(name), 0)
    local = struct.pack("<IHHHHH", 0x04034B50, 20, 0, 8, 0, 0) + facts + name + packed
    central = struct.pack("<IHHHHHH", 0x02014B50, 20, 20, 0, 8, 0, 0) + facts
    central += struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return (
        local
        + central
        + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central), len(local), 0)
    )


def test_a_deflated_member_is_what_the_archive_says_or_an_error() -> None:
    plain = member(array=np.arange(1000))
    packed = _deflated(plain)
    crc, size = zlib.crc32(plain), len(plain)
    good = archive(packed, crc, size)
    assert opened(good).take([999])["x"].to_pylist() == [999]
    gzip_head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    hostile = {
        "another gzip member inside": (b"\x03\x00" + bytes(8) + gzip_head + packed, crc, size),
        "a trailer inside": (packed + struct.pack("<II", crc, size), crc, size),
        "other bytes behind": (packed + bytes(20), crc, size),
        "a wrong checksum": (packed, crc ^ 1, size),
        "a size too large": (packed, crc, size + 1),
        "a size too small": (packed, crc, size - 1),
        **{f"cut by {n}": (packed[:-n], crc, size) for n in (1, 2, 3, 5, 8, 9, 20, len(packed))},
    }
    for name, (bytes_, sum_, length) in hostile.items():
        with pytest.raises(ps.PenstockError):
            opened(archive(bytes_, sum_, length)).take([0])
            pytest.fail(name)
    with pytest.raises(ps.TruncatedError, match="too few bytes"):
        opened(archive(packed[:-20], crc, size)).take([0])
    with pytest.raises(ps.ChecksumError):
        opened(archive(packed, crc ^ 1, size)).take([0])


def _deflated(plain: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(plain) + engine.flush()
