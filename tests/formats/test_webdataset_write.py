"""Writing WebDataset: names of members, values that come back, invalid keys, equal bytes."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import ImageType, VariableShapeTensorType, fixed_tensors
from penstock.framing.index import sidecar
from penstock.storage.local import LocalStorage
from reading import index_of

COUNT = 40


def tensors() -> Any:
    type_ = VariableShapeTensorType(pa.int16(), 2)
    rows = [{"data": list(range(n * 2)), "shape": [n, 2]} for n in range(COUNT)]
    return pa.ExtensionArray.from_storage(type_, pa.array(rows, type_.storage_type))


def images(codec: str) -> Any:
    return pa.ExtensionArray.from_storage(ImageType(codec), pa.array([b"P"] * COUNT, pa.binary()))


def some(values: Any, type_: Any) -> Any:
    """Values, every third of which is missing."""
    return pa.array([None if n % 3 == 2 else value for n, value in enumerate(values)], type_)


COLUMNS: dict[str, tuple[Any, str]] = {
    "id": (pa.array(range(COUNT)), "id"),
    "label": (some(range(COUNT), pa.int8()), "label.cls"),
    "big": (some([2**64 - 1] * COUNT, pa.uint64()), "big.cls"),
    "flag": (some([True, False] * 20, pa.bool_()), "flag.cls"),
    "Score": (some(np.arange(COUNT) / 3, pa.float32()), "score.npy"),
    "half": (pa.array(np.arange(COUNT, dtype=np.float16)), "half.npy"),
    "text": (some([f"é{n}" for n in range(COUNT)], pa.string()), "text"),
    "note": (some(["n"] * COUNT, pa.large_string()), "note.txt"),
    "pet": (pa.array(["cat", "dog"] * 20).dictionary_encode(), "pet.txt"),
    "blob": (some([b"\0\xff"] * COUNT, pa.binary()), "blob.bin"),
    "hash": (some([b"12345678"] * COUNT, pa.binary(8)), "hash.bin"),
    "mp4": (pa.array([b"film"] * COUNT), "mp4"),
    "jpg": (images("jpeg"), "jpg"),
    "depth": (images("png"), "depth.png"),
    "seg.png": (images("png"), "seg.png"),
    "any": (images(""), "any.img"),
    "meta": (pa.array(['{"a":1}'] * COUNT).cast(pa.json_()), "meta.json"),
    "tokens": (
        some([list(range(n % 4)) for n in range(COUNT)], pa.list_(pa.int32())),
        "tokens.npy",
    ),
    "bools": (pa.array([[True, False]] * COUNT), "bools.npy"),
    "pair": (pa.array([[1.5, 2.5]] * COUNT, pa.list_(pa.float64(), 2)), "pair.npy"),
    "pixels": (
        fixed_tensors(np.arange(COUNT * 6, dtype=np.uint8).reshape(COUNT, 2, 3)),
        "pixels.npy",
    ),
    "ragged": (tensors(), "ragged.npy"),
    "names": (some([["a", "b"]] * COUNT, pa.list_(pa.string())), "names.json"),
    "blobs": (some([[b"\0", b"\xff"]] * COUNT, pa.list_(pa.binary())), "blobs.json"),
    "box": (pa.array([{"x": 1, "y": [b"z", None]}] * COUNT), "box.json"),
    "time": (some([dt.datetime(2026, 1, 2)] * COUNT, pa.timestamp("us")), "time.cls"),
    "day": (some([dt.date(1969, 1, 2)] * COUNT, pa.date32()), "day.cls"),
    "nothing": (pa.nulls(COUNT), "nothing.bin"),
    "two words/é": (pa.array(range(COUNT)), "two_words__.cls"),
    "two_words__": (pa.array(range(COUNT)), "two_words__-2.cls"),
}


@pytest.fixture
def table() -> pa.Table:
    return pa.table({name: values for name, (values, _) in COLUMNS.items()})


def whole(path: Path, **options: Any) -> pa.Table:
    dataset = ps.open(str(path), **options)
    return pa.Table.from_batches(list(dataset.scan()), schema=dataset.schema)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_every_type_comes_back_under_its_name(
    compression: str | None, table: pa.Table, tmp_path: Path
) -> None:
    path = tmp_path / "a.tar"
    ps.write(table, str(path), compression=compression)
    found = whole(path)
    assert found.schema.equals(table.schema)
    assert found.to_pylist() == table.to_pylist()
    taken = ps.open(str(path)).take([7, 0, 39])
    assert pa.Table.from_batches([taken]).to_pylist() == table.take([7, 0, 39]).to_pylist()


def test_members_are_named_by_key_and_field(table: pa.Table, tmp_path: Path) -> None:
    ps.write(table, str(tmp_path / "a.tar"))
    with tarfile.open(tmp_path / "a.tar") as tar:
        members = tar.getmembers()
    fields = sorted(field for name, (_, field) in COLUMNS.items() if name != "nothing")
    assert [m.name for m in members if m.name.startswith("000000001.")] == [
        f"000000001.{field}" for field in fields
    ]
    assert {(m.mode, m.uid, m.gid, m.mtime) for m in members} == {(0o444, 0, 0, 0)}
    assert (tmp_path / "a.tar").stat().st_size % 10240 == 0


def test_without_a_description_names_and_types_come_from_the_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    ps.write({"score": [1, 2], "txt": ["a", "b"]}, str(path), describe=False)
    found = ps.open(str(path))
    assert found.schema.names == ["__key__", "score.cls", "txt", "__url__"]
    assert found[1]["score.cls"] == 2
    assert ps.open(str(path), schema={"score.cls": pa.int8()})[1]["score.cls"] == 2


def test_as_bytes_an_archive_has_its_fields_and_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    ps.write({"a": [1], "a.cls": [2]}, str(path))
    (record,) = ps.open(str(path), decode=False)
    del record["__url__"]
    assert record == {"__key__": "000000000", "a.cls": b"1", "a-2.cls": b"2"}
    assert ps.open(str(path))[0] == {"a": 1, "a.cls": 2}


def test_keys_come_from_the_key_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    keys = ["a", "b", "a", "d.ir/é", "long/" + "x" * 300, " "]
    ps.write({"__key__": keys, "cls": range(6)}, str(path))
    assert [record["__key__"] for record in ps.open(str(path))] == keys
    with tarfile.open(path) as tar:
        assert tar.getnames() == [f"{key}.cls" for key in keys]


@pytest.mark.parametrize(
    ("keys", "record", "words"),
    [
        (["a", "a"], 1, "same key"),
        (["a", "b.c"], 1, "dot"),
        (["a", "b\0"], 1, "NUL"),
        (["a", ""], 1, "readers skip"),
        (["__meta__/a", "b"], 0, "readers skip"),
        (["a", None], 1, "no key"),
    ],
)
def test_a_key_that_would_not_come_back_is_refused(
    keys: list[str | None], record: int, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ps.SchemaError, match=words) as caught:
        ps.write({"__key__": keys, "cls": [1, 2]}, str(tmp_path / "a.tar"))
    assert (caught.value.record, caught.value.field) == (record, "__key__")
    assert not list(tmp_path.iterdir())


def test_equal_keys_are_seen_across_batches(tmp_path: Path) -> None:
    batch = pa.record_batch({"__key__": ["a"], "cls": [1]})
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])
    with pytest.raises(ps.SchemaError, match="same key"):
        ps.write(reader, str(tmp_path / "a.tar"))


def test_values_that_members_cannot_hold_are_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    for values in (
        pa.array([None], pa.struct([("d", pa.month_day_nano_interval())])),
        pa.array([None], pa.list_(pa.timestamp("s"))),
        pa.array([None], pa.month_day_nano_interval()),
    ):
        with pytest.raises(ps.SchemaError, match="a member of a tar archive cannot hold"):
            ps.write(pa.table({"x": values}), str(tmp_path / "a.tar"))
    with pytest.raises(ps.SchemaError, match="null"):
        ps.write({"x": [[1, None]]}, str(tmp_path / "a.tar"))
    with pytest.raises(ps.SchemaError, match="keys"):
        ps.write({"__key__": [1]}, str(tmp_path / "a.tar"))
    assert not list(tmp_path.iterdir())


def test_a_record_of_nulls_is_there(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    ps.write({"n": pa.array([None, 1, None], pa.int64())}, str(path))
    assert [record["n"] for record in ps.open(str(path))] == [None, 1, None]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_bytes_and_index_depend_on_the_records_alone(
    compression: str | None, table: pa.Table, tmp_path: Path, index_beside: None
) -> None:
    table = pa.concat_tables([table] * 100).combine_chunks()
    seen = set()
    for number, (threads, size) in enumerate([(1, 10_000), (3, 333), (2, 1)]):
        data = table.slice(0, 500) if size == 1 else table
        batches = data.to_batches(max_chunksize=size)
        path = tmp_path / f"{number}.tar"
        reader = pa.RecordBatchReader.from_batches(table.schema, batches)
        ps.write(reader, str(path), threads=threads, compression=compression)
        if size > 1:
            seen.add(path.read_bytes())
    assert len(seen) == 1
    written = sidecar.load(str(index_of(path)), LocalStorage())
    index_of(path).unlink()
    assert len(ps.open(str(path))) == 500
    found = sidecar.load(str(index_of(path)), LocalStorage())
    assert written.starts.tolist() == found.starts.tolist()
    assert written.checksums.tolist() == found.checksums.tolist()
    assert written.points == found.points


def test_an_archive_is_copied_with_its_keys_and_fields(tmp_path: Path) -> None:
    golden = {"__key__": ["a/1", "b"], "jpg": [b"J", b"K"], "seg.png": [None, b"P"]}
    ps.write(golden, str(tmp_path / "a.tar"), describe=False)
    first = ps.open(str(tmp_path / "a.tar"))
    ps.write(first, str(tmp_path / "b.tar"))
    second = ps.open(str(tmp_path / "b.tar"))
    assert second.schema.names == first.schema.names
    drop = {"__url__": None}
    assert [{**r, **drop} for r in second] == [{**r, **drop} for r in first]


def test_a_truncated_archive_of_penstock_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    ps.write({"a": range(30), "b": range(30)}, str(path), index=False)
    data = path.read_bytes()
    for cut in (len(data) - 1, len(data) - 10240, 20 * 512, 21 * 512, len(data) - 512):
        path.write_bytes(data[:cut])
        with pytest.raises(ps.TruncatedError):
            list(ps.open(str(path), index="never"))


def test_an_unreadable_description_is_ignored(tmp_path: Path) -> None:
    def described(text: bytes) -> bytes:
        out = io.BytesIO()
        headers = {"comment": text.decode("latin-1")}
        with tarfile.open(
            fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers
        ) as t:
            info = tarfile.TarInfo("k.cls")
            info.size = 1
            t.addfile(info, io.BytesIO(b"7"))
        return out.getvalue()

    right = {"penstock": 1, "schema": "", "fields": {}}
    for text in (
        b"made by git",
        b"{}",
        b"[" * 100_000,
        json.dumps(right).encode(),
        json.dumps({**right, "schema": "AAAA"}).encode(),
        json.dumps({**right, "schema": 7}).encode(),
        json.dumps({**right, "fields": [1]}).encode(),
        json.dumps({**right, "penstock": 2}).encode(),
    ):
        path = tmp_path / "a.tar"
        path.write_bytes(described(text))
        dataset = ps.open(str(path), index="never")
        assert dataset.schema.names == ["__key__", "cls", "__url__"], text
        assert dataset[0]["cls"] == 7


def test_a_repaired_archive_reads_as_before(tmp_path: Path) -> None:
    path, mended = tmp_path / "a.tar", tmp_path / "b.tar"
    ps.write({"n": range(200), "text": [f"t{n}" for n in range(200)]}, str(path))
    data = bytearray(path.read_bytes())
    place = data.index(b"000000077.text")
    data[place] ^= 1
    path.write_bytes(data)
    report = ps.verify(str(path))
    assert not report.ok
    ps.repair(str(path), into=str(mended))
    numbers = [record["n"] for record in ps.open(str(mended))]
    assert set(range(200)) - set(numbers) <= {76, 77, 78}
    assert 77 not in numbers


def test_options_that_are_wrong_are_refused(tmp_path: Path) -> None:
    for word, wrong in {"compression": "zip", "level": 0}.items():
        with pytest.raises(ValueError, match=word):
            ps.write({"a": [1]}, str(tmp_path / "a.tar"), **{word: wrong})


@pytest.mark.parametrize(
    ("size", "lines"),
    [
        (b"\x80" + (60).to_bytes(11, "big"), b"60 comment=x\n"),
        (b"-1\0", b"13 comment=x\n"),
        (b"9\0", b"13 comment=x\n"),
        (b"00000020000\0", b"9" * 5000 + b" comment={}"),
    ],
    ids=["base 256", "negative", "no octal", "many digits"],
)
def test_a_comment_with_a_wrong_size_under_a_right_checksum(
    tmp_path: Path, size: bytes, lines: bytes
) -> None:
    head = bytearray(tarfile.TarInfo("pax_global_header").tobuf(tarfile.USTAR_FORMAT))
    head[124:136] = size.ljust(12, b"\0")
    head[156:157] = b"g"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    path = tmp_path / "a.tar"
    path.write_bytes(bytes(head) + lines.ljust(8192, b"0") + bytes(1024))
    with contextlib.suppress(ps.PenstockError):
        list(ps.open(str(path), index="never", format="webdataset").scan())
