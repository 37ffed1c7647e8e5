"""A schema is inferred from the stated number of records, however the file is divided when it is read."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import msgpack
import pytest

import penstock as ps
from frames import example, file_of
from fuzz.mxnet_rules import file_of as pack_of
from fuzz.mxnet_rules import pack


def tfrecord(sizes: list[int]) -> bytes:
    """Examples, the last of which has one more feature."""
    payloads = [example({"data": [bytes(size)]}) for size in sizes[:-1]]
    return file_of([*payloads, example({"data": [bytes(sizes[-1])], "late": [b"x"]})])


def tar(sizes: list[int]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for n, size in enumerate(sizes):
            last = n == len(sizes) - 1
            for name, data in [("data", bytes(size)), *([("late", b"x")] if last else [])]:
                member = tarfile.TarInfo(f"{n:06d}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def messages(sizes: list[int]) -> bytes:
    rows = [{"data": bytes(size)} for size in sizes]
    rows[-1]["late"] = b"x"
    return b"".join(map(msgpack.packb, rows))


def recordio(sizes: list[int]) -> bytes:
    """A pack, the last of whose records has two labels."""
    jpeg = b"\xff\xd8\xff\xe0"
    rows = [pack(1.0, jpeg + bytes(size)) for size in sizes[:-1]]
    return pack_of([*rows, pack([1.0, 2.0], jpeg + bytes(sizes[-1]))])


MADE = {"a.tfrecord": tfrecord, "a.tar": tar, "a.msgpack": messages, "a.rec": recordio}
LARGE = [100_000] * 20
MANY = [200] * 20_000


def sees_the_last(dataset: ps.Dataset) -> bool:
    schema = dataset.schema
    return "late" in schema.names or "list" in str(schema.field(0).type)


@pytest.mark.parametrize("name", [*MADE, "a.tfrecord.gz", "a.tar.gz"])
def test_a_field_of_the_last_large_record_is_found(name: str, tmp_path: Path) -> None:
    data = MADE[name.removesuffix(".gz")](LARGE)
    (tmp_path / name).write_bytes(gzip.compress(data, 1) if name.endswith(".gz") else data)
    dataset = ps.open(tmp_path / name)
    assert sees_the_last(dataset), dataset.schema
    assert len(dataset) == len(LARGE)


@pytest.mark.parametrize("name", MADE)
def test_all_records_are_all(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(MADE[name](MANY))
    assert not sees_the_last(ps.open(tmp_path / name))
    dataset = ps.open(tmp_path / name, infer_records="all")
    assert sees_the_last(dataset), dataset.schema
    assert sum(map(len, dataset.scan())) == len(MANY)
