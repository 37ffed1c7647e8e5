"""The benchmark's payloads in other containers. None of the measured programs writes these files, so all of them read
the same bytes, and each payload has the checksum that the generator stored."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.data import Data

RECORDIO_MAGIC = 0xCED7230A


def payloads(data: Data) -> Iterator[bytes]:
    """Every payload of the TFRecord file."""
    with data.plain.open("rb") as file:
        while head := file.read(12):
            (length,) = struct.unpack_from("<Q", head)
            yield file.read(length)
            file.seek(4, io.SEEK_CUR)


def _tar(data: Data, path: Path) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, payload in enumerate(payloads(data)):
            for field, value in (("bin", payload), ("cls", b"%d" % (number % 1000))):
                member = tarfile.TarInfo(f"{number:08d}.{field}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))


def _recordio(data: Data, path: Path) -> None:
    magic = struct.pack("<I", RECORDIO_MAGIC)
    with path.open("wb") as file:
        for payload in payloads(data):
            pieces = _cut(payload, magic)
            for n, piece in enumerate(pieces):
                flag = 0 if len(pieces) == 1 else 1 if n == 0 else 3 if n == len(pieces) - 1 else 2
                head = struct.pack("<II", RECORDIO_MAGIC, flag << 29 | len(piece))
                file.write(head + piece + bytes(-len(piece) % 4))


def _cut(payload: bytes, magic: bytes) -> list[bytes]:
    """A payload, split where the magic is at a multiple of four bytes."""
    pieces, start, at = [], 0, payload.find(magic)
    while at >= 0:
        if at % 4 == 0:
            pieces.append(payload[start:at])
            start = at + 4
        at = payload.find(magic, at + (4 if at % 4 == 0 else 1))
    return [*pieces, payload[start:]]


def _msgpack(data: Data, path: Path) -> None:
    with path.open("wb") as file:
        for number, payload in enumerate(payloads(data)):
            size = len(payload)
            head = struct.pack(">BB", 0xC4, size) if size < 256 else struct.pack(">BI", 0xC6, size)
            label = struct.pack(">BH", 0xCD, number % 1000 + 256)
            file.write(b"\x82\xa5label" + label + b"\xa7payload" + head + payload)


def _array_record(data: Data, path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    # One record per group and no compression, as is usual for random access.
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for payload in payloads(data):
        writer.write(payload)
    writer.close()


_MAKERS: dict[str, Callable[[Data, Path], None]] = {
    "tar": _tar,
    "rec": _recordio,
    "msgpack": _msgpack,
    "array_record": _array_record,
}


def copy(data: Data, suffix: str) -> Path:
    """The file of a container; makes the file if it is missing."""
    path = data.copy(f"payloads.{suffix}")
    if not path.exists():
        made = path.with_suffix(".part")
        _MAKERS[suffix](data, made)
        made.rename(path)
    return path
