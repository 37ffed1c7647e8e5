"""Reading WebDataset: golden archives, names and values of fields, options, and malformed archives."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tars import END, archive, member

import penstock as ps
from damaging import tell_the_old_state
from penstock.columns.types import ImageType
from reading import index_of, shared_path

GOLDEN = shared_path("specs", "golden", "webdataset")


def read(path: Path, **options: Any) -> list[dict[str, Any]]:
    """The records of a file as webdataset returns them: only with the fields that they have."""
    dataset = ps.open(str(path), **{"index": "never", **options})
    rows = [row for batch in dataset.scan() for row in batch.to_pylist()]
    return [{k: v for k, v in row.items() if v is not None and k != "__url__"} for row in rows]


def made(folder: Path, data: bytes, **options: Any) -> list[dict[str, Any]]:
    path = folder / "a.tar"
    path.write_bytes(data)
    return read(path, **options)


def expected(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.expected.json").read_text())


def plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {
        key: bytes.fromhex(value["bytes_hex"]) if isinstance(value, dict) else value
        for key, value in sample.items()
    }


WHOLE = [
    "compressed.tar.gz",
    "grouping.tar",
    "long_names_gnu.tar",
    "long_names_pax.tar",
    "no_eof_blocks.tar",
    "non_consecutive.tar",
    "non_regular.tar",
    "ustar_prefix.tar",
]


@pytest.mark.parametrize("name", WHOLE)
def test_a_golden_archive_has_the_records_that_webdataset_sees(name: str) -> None:
    samples = [plain(sample) for sample in expected(name)["raw"]["samples"]]
    assert read(GOLDEN / name, decode=False) == samples
    dataset = ps.open(str(GOLDEN / name), index="never", decode=False)
    for number, sample in enumerate(samples):
        record = dataset[number]
        assert {k: record[k] for k in sample} == sample
        assert record["__url__"] == str(GOLDEN / name)


def test_an_archive_after_another_is_read_too() -> None:
    # webdataset silently stops at the end of the first archive.
    first = [plain(sample) for sample in expected("concatenated.tar")["raw"]["samples"]]
    found = read(GOLDEN / "concatenated.tar", decode=False)
    assert found[: len(first)] == first
    assert found[len(first) :] == first


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("bad_checksum_second_member.tar", ps.FormatError, "byte 1024: there is no header"),
        ("duplicate_field.tar", ps.FormatError, "field 'a'.*s0.A"),
        ("truncated_in_data.tar", ps.TruncatedError, "ends inside a member"),
    ],
)
def test_a_broken_golden_archive_is_refused_in_words(name: str, kind: Any, words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        read(GOLDEN / name)
    assert caught.value.file == str(GOLDEN / name)
    assert caught.value.record == 0


def test_values_are_what_the_last_part_of_a_name_says() -> None:
    (found,) = read(GOLDEN / "typed.tar")
    wanted = expected("typed.tar")["decoded_rgb8"]["samples"][0]
    assert found["cls"] == 7
    assert found["count"] == b"5"
    assert found["txt"] == "héé"
    assert found["x.txt.gz"] == "zipped"
    assert json.loads(found["json"]) == wanted["json"]
    assert list(found["npy"]) == wanted["npy"]["ndarray"]
    assert found["png"].startswith(b"\x89PNG")
    assert found["mp"] == wanted["mp"]
    for name, array in found["npz"].items():
        assert list(array) == wanted["npz"][name]["ndarray"]
    for raw in ("bin", "ten"):
        assert isinstance(found[raw], bytes)
    schema = ps.open(str(GOLDEN / "typed.tar"), index="never").schema
    assert schema.field("png").type == ImageType("png")
    assert schema.field("json").type == pa.json_()
    assert schema.field("npy").type == pa.fixed_shape_tensor(pa.int32(), [3])
    assert schema.names[0] == "__key__"
    assert schema.names[-1] == "__url__"


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_arrays_become_what_the_first_records_agree_on(tmp_path: Path) -> None:
    cases: dict[str, list[Any]] = {
        "number.npy": [np.float64(1.5), np.float64(-2)],
        "even.npy": [np.ones((2, 3), ">f4"), np.zeros((2, 3), "<f4")],
        "fortran.npy": [np.asfortranarray(np.arange(6).reshape(2, 3))] * 2,
        "uneven.npy": [np.arange(3), np.arange(5)],
        "empty.npy": [np.zeros((0, 4), np.int8)] * 2,
        "mixed.npy": [np.arange(3), np.ones(3)],
        "texts.npy": [np.array(["a"])] * 2,
    }
    members = [(f"{n}.{field}", npy(arrays[n])) for n in (0, 1) for field, arrays in cases.items()]
    found = made(tmp_path, archive(members))
    schema = ps.open(str(tmp_path / "a.tar"), index="never").schema
    types = {name: str(schema.field(name).type) for name in cases}
    assert types["number.npy"] == "double"
    assert types["mixed.npy"] == types["texts.npy"] == "binary"
    for n, record in enumerate(found):
        assert record["number.npy"] == cases["number.npy"][n]
        for name in ("even.npy", "fortran.npy", "empty.npy"):
            tensors = ps.open(str(tmp_path / "a.tar")).take([0, 1]).column(name)
            shape = tuple(tensors.type.shape)
            values = np.array(tensors.storage[n].as_py()).reshape(shape)
            np.testing.assert_array_equal(values, cases[name][n])
        uneven = record["uneven.npy"]
        assert list(uneven["data"]) == list(cases["uneven.npy"][n])
        assert list(uneven["shape"]) == [len(cases["uneven.npy"][n])]


@pytest.mark.parametrize(
    ("name", "contents"),
    [
        ("cls", b"cat"),
        ("cls", b""),
        ("cls", b"9223372036854775808"),
        ("txt", b"\xff"),
        ("json", b"\xff"),
        ("txt.gz", b"no gzip"),
        ("txt.gz", gzip.compress(b"text", mtime=0)[:-3]),
        ("cls.gz", gzip.compress(b"cat", mtime=0)),
    ],
)
def test_contents_that_cannot_be_decoded_name_record_and_field(
    name: str, contents: bytes, tmp_path: Path
) -> None:
    right = gzip.compress(b"1") if name.endswith("gz") else b"1"
    data = archive([(f"a.{name}", right), (f"b.{name}", contents)])
    with pytest.raises(ps.FormatError) as caught:
        made(tmp_path, data)
    assert (caught.value.record, caught.value.field) == (1, name)
    assert made(tmp_path, data, decode=False)[1][name] == contents


def test_an_invalid_array_names_record_and_field(tmp_path: Path) -> None:
    right = npy(np.arange(3))
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], object), allow_pickle=True)
    # A record with a different shape is valid, and fits a different schema.
    other = npy(np.arange(4))
    for wrong in (pickled.getvalue(), right[:-1], right + b"x", other, b"", right[:8]):
        kind = ps.SchemaError if wrong == other else ps.FormatError
        data = archive([*((f"{n:04}.npy", right) for n in range(1000)), ("x.npy", wrong)])
        with pytest.raises(kind) as caught:
            made(tmp_path, data)
        assert (caught.value.record, caught.value.field) == (1000, "npy")


def test_members_that_would_run_code_stay_bytes(tmp_path: Path) -> None:
    bomb = b"cposix\nsystem\n(S'touch /tmp/penstock-was-here'\ntR."
    names = ("pyd", "pickle", "pkl", "pth", "pt")
    (record,) = made(tmp_path, archive([(f"a.{name}", bomb) for name in names]))
    assert record == {"__key__": "a", **dict.fromkeys(names, bomb)}


def test_blanks_around_numbers_are_allowed(tmp_path: Path) -> None:
    found = made(tmp_path, archive([("a.cls", b" 7\n"), ("b.cls", b"-3"), ("c.cls", b"+4 ")]))
    assert [record["cls"] for record in found] == [7, -3, 4]


def test_only_compressed_files_of_known_kinds_are_inflated(tmp_path: Path) -> None:
    packed = gzip.compress(b"text") + gzip.compress(b" and more")
    (record,) = made(tmp_path, archive([("a.tar.gz", packed), ("a.txt.gz", packed)]))
    assert record["tar.gz"] == packed
    assert record["txt.gz"] == "text and more"
    bomb = gzip.compress(bytes(1 << 20))
    with pytest.raises(ps.LimitError, match="member_bytes"):
        made(tmp_path, archive([("a.txt.gz", bomb)]), limits={"member_bytes": 1000})


def test_fields_are_chosen_and_cast_by_a_schema(tmp_path: Path) -> None:
    data = archive([("a.jpg", b"J"), ("a.cls", b"7"), ("b.jpg", b"K"), ("b.txt", b"1.5")])
    schema = pa.schema([("cls", pa.int8()), ("jpg", pa.large_binary()), ("txt", pa.float32())])
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    dataset = ps.open(str(path), schema=schema, index="never")
    assert dataset.schema.equals(schema)
    wanted = [{"cls": 7, "jpg": b"J", "txt": None}, {"cls": None, "jpg": b"K", "txt": 1.5}]
    assert list(dataset) == wanted
    types = ps.open(str(path), schema={"cls": pa.string(), "new": pa.binary()}, index="never")
    assert types.schema.names == ["__key__", "cls", "jpg", "txt", "new", "__url__"]
    assert types[0]["cls"] == "7"
    strict = pa.schema([pa.field("cls", pa.int64(), nullable=False)])
    with pytest.raises(ps.SchemaError) as caught:
        list(ps.open(str(path), schema=strict, index="never").scan())
    assert (caught.value.record, caught.value.field) == (1, "cls")
    with pytest.raises(ps.SchemaError):
        list(ps.open(str(path), schema=pa.schema([("cls", pa.bool_())]), index="never").scan())


def test_raw_returns_the_members_unchanged(tmp_path: Path) -> None:
    first, second = member("a.x", b"1"), member("b.x", b"2")
    records = made(tmp_path, first + second + END, raw=True)
    assert [record["record"] for record in records] == [first, second + END]


def test_an_archive_is_recognised_by_its_bytes(tmp_path: Path) -> None:
    data = archive([("a.txt", b"text")])
    for content in (data, gzip.compress(data)):
        path = tmp_path / "nameless"
        path.write_bytes(content)
        assert ps.open(str(path), index="never").shards[0].format == "webdataset"
    for name, content in (("b", bz2.compress(data)), ("c", lzma.compress(data))):
        path = tmp_path / f"{name}.tar"
        path.write_bytes(content)
        with pytest.raises(ps.UnsupportedError, match="compressed with"):
            ps.open(str(path), index="never")


@pytest.mark.parametrize("data", [END, bytes(10240), member("d/", type=tarfile.DIRTYPE) + END])
def test_an_archive_of_nothing_has_no_records(data: bytes, tmp_path: Path) -> None:
    assert made(tmp_path, data) == []
    assert len(ps.open(str(tmp_path / "a.tar"))) == 0


def test_a_name_is_only_a_key(tmp_path: Path) -> None:
    names = ["../x.txt", "/abs.txt", "a/../../y.txt", "C:\\z.txt"]
    found = made(tmp_path / ".", archive([(name, b"") for name in names]))
    assert [record["__key__"] for record in found] == ["../x", "/abs", "a/../../y", "C:\\z"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_names_that_are_not_text_are_refused(tmp_path: Path) -> None:
    for name in ("k\udcff.txt", "a.\udcff"):
        with pytest.raises(ps.PenstockError, match="UTF-8"):
            made(tmp_path, member(name, b"1", pax_headers={}) + END)


def test_records_are_found_through_large_members_and_many(tmp_path: Path) -> None:
    rng = random.Random(5)
    sizes = [0, 1, 511, 512, 513, 5 << 20, 100, 3 << 20]
    contents = [rng.randbytes(size) for size in sizes]
    members = [(f"{n}.{part}", data) for n, data in enumerate(contents) for part in ("a", "b")]
    path = tmp_path / "a.tar"
    path.write_bytes(archive(members, tarfile.PAX_FORMAT))
    dataset = ps.open(str(path), decode=False)
    assert [record["b"] for record in dataset] == contents
    assert dataset.take([5, 0, 7]).column("a").to_pylist() == [contents[n] for n in (5, 0, 7)]
    with pytest.raises(ps.LimitError, match="record_bytes"):
        read(path, limits={"record_bytes": 1 << 20})


def test_an_index_knows_the_bytes_of_every_record(tmp_path: Path, index_beside: None) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive([(f"{n}.txt", b"text %d" % n) for n in range(100)]))
    assert len(ps.open(str(path))) == 100
    data = bytearray(path.read_bytes())
    data[50 * 1024 + 515] ^= 1  # in the contents of record 50, for which a tar has no checksum
    path.write_bytes(data)
    tell_the_old_state({index_of(path): index_of(path).read_bytes()}, path)
    with pytest.raises(ps.ChecksumError) as caught:
        list(ps.open(str(path)).scan())
    assert caught.value.record == 50


def test_reading_continues_after_damage_with_whole_records(tmp_path: Path) -> None:
    members = [(f"{n:03}.{part}", b"%d" % n) for n in range(50) for part in ("cls", "txt")]
    data = bytearray(archive(members))
    data[20 * 2048 + 1024 + 3] ^= 1  # the header of the second member of record 20
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    dataset = ps.open(str(path), damage="skip", index="never")
    found = list(dataset)
    assert all(record["txt"] == str(record["cls"]) for record in found)
    keys = [int(record["__key__"]) for record in found]
    assert keys == [*range(20), *range(22, 50)]
    assert len(dataset.damage) == 1


SMALL = archive([("a.cls", b"1"), ("a.txt", b"text"), ("b.cls", b"2")], tarfile.PAX_FORMAT)


def tried(data: bytes, **options: Any) -> list[dict[str, Any]] | ps.PenstockError:
    from penstock.storage import MemoryStorage

    storage = MemoryStorage({"a.tar": data})
    try:
        dataset = ps.open("a.tar", storage=storage, index="never", format="webdataset", **options)
        return [row for batch in dataset.scan(threads=1) for row in batch.to_pylist()]
    except ps.PenstockError as error:
        return error


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_at_any_byte_is_an_error_or_leaves_whole_members(packed: bool) -> None:
    whole = tried(SMALL)
    assert isinstance(whole, list)
    data = gzip.compress(SMALL) if packed else SMALL
    for cut in range(len(data)):
        found = tried(data[:cut])
        if isinstance(found, ps.PenstockError):
            assert found.file == "a.tar"
        else:
            assert cut % 512 == 0
            assert not packed or cut == 0
            members = [v for record in found for v in record.values()]
            assert set(members) <= {v for record in whole for v in record.values()} | {None}


def test_flipped_bytes_never_escape_as_other_errors() -> None:
    rng = random.Random(7)
    for seed in (SMALL, gzip.compress(SMALL), (GOLDEN / "long_names_pax.tar").read_bytes()):
        for _ in range(400):
            data = bytearray(seed)
            for _ in range(rng.choice((1, 2, 20))):
                data[rng.randrange(min(len(data), 8192))] = rng.randrange(256)
            for options in ({}, {"decode": False}, {"damage": "skip"}):
                tried(bytes(data), **options)


def test_no_declared_size_is_trusted(tmp_path: Path) -> None:
    def with_size(field: bytes) -> bytes:
        block = bytearray(member("a.txt"))
        block[124:136] = field.ljust(12, b"\0")
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block[:512])
        return bytes(block) + END

    huge = b"\x80" + bytes(3) + struct.pack(">Q", (1 << 64) - 1)
    for field in (b"77777777777", huge, b"\x80" + b"\xff" * 11, b"\xff" * 12, b"89", b"-1"):
        with pytest.raises(ps.FormatError):
            made(tmp_path, with_size(field))


def test_more_endings_than_fields_can_be_are_refused(tmp_path: Path) -> None:
    data = b"".join(member(f"a.{n}") for n in range(10_001)) + END
    with pytest.raises(ps.LimitError, match="endings"):
        made(tmp_path, data)
    schema = pa.schema([("7", pa.binary())])
    assert made(tmp_path, data, schema=schema) == [{"7": b""}]


def test_options_that_are_wrong_are_refused() -> None:
    path = str(GOLDEN / "grouping.tar")
    with pytest.raises(ValueError, match="compression"):
        ps.open(path, compression="zip")
    with pytest.raises(TypeError, match="decode"):
        ps.open(path, pickles=True)
    with pytest.raises(ps.SchemaError, match="pyarrow"):
        ps.open(path, schema={"jpg": "image"})
