"""Files of each format with valid framing, in which the contents of one record cannot be decoded.

The bad record comes after the records from which a schema is inferred.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

import frames
import penstock as ps
from formats import tars
from fuzz import mxnet_rules
from fuzz.mds_shards import one_column
from fuzz.riegeli_files import chunk, file_of

NUM_RECORDS, BAD = 1100, 1050
Make = Callable[[Path], Path]
"""Writes one file (or folder) into a folder, and returns its path."""


def _file(name: str, data: Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data())
        return path

    return make


def _payloads(good: Callable[[int], bytes], bad: bytes) -> list[bytes]:
    return [bad if number == BAD else good(number) for number in range(NUM_RECORDS)]


def _tar(field: str, good: bytes, *bad: tuple[str, bytes]) -> Make:
    """An archive of one field, and the members of the bad record."""
    members = [
        (f"k{number:04}.{name}", contents)
        for number in range(NUM_RECORDS)
        for name, contents in (bad if number == BAD else ((field, good),))
    ]
    return _file("x.tar", lambda: tars.archive(members))


def _own_tar(column: pa.Array, broken: bytes) -> Make:
    """An archive that penstock wrote, in which the beginning of one member was replaced."""

    def make(folder: Path) -> Path:
        path = folder / "x.tar"
        ps.write(pa.table({"x": column}), path, index=False)
        data = bytearray(path.read_bytes())
        at = data.index(b"%09d" % BAD) + 512
        data[at : at + len(broken)] = broken
        path.write_bytes(data)
        return path

    return make


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _part(tag: int, contents: bytes) -> bytes:
    return bytes([tag << 3 | 2]) + _varint(len(contents)) + contents


def example(values: bytes) -> bytes:
    """An Example of one feature, "a", whose Int64List has these packed bytes."""
    feature = _part(3, _part(1, values))
    return _part(1, _part(1, _part(1, b"a") + _part(2, feature)))


def _examples(bad: bytes) -> list[bytes]:
    return _payloads(lambda number: example(_varint(number)), bad)


def _text() -> pa.Array:
    """Strings, one of which is not UTF-8."""
    stored = pa.array(_payloads(lambda number: b"abcd", b"ab\xff\xff"), pa.binary())
    return pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())


def _table() -> pa.Table:
    return pa.table({"id": np.arange(NUM_RECORDS), "text": _text()})


def _parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(_table(), out, compression="none", use_dictionary=False)
    return out.getvalue()


def _arrow() -> bytes:
    out = io.BytesIO()
    with ipc.new_file(out, _table().schema) as writer:
        writer.write_table(_table())
    return out.getvalue()


def _codes() -> np.ndarray:
    """NumPy strings, one of which has a code that is not a character."""
    codes = np.array(["abcd"] * NUM_RECORDS).view(np.uint32).copy()
    codes[4 * BAD + 1] = 0x7FFF_FFFF
    return codes.view("<U4")


def _saved(save: Callable[[io.BytesIO], None]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


def _hdf5(folder: Path) -> Path:
    with h5py.File(folder / "x.h5", "w") as file:
        text = file.create_dataset("text", (NUM_RECORDS,), h5py.string_dtype("utf-8"))
        text[:] = _payloads(lambda number: b"abcd", b"ab\xff")
        file["id"] = np.arange(NUM_RECORDS)
    return folder / "x.h5"


def _beton(folder: Path) -> Path:
    path = folder / "x.beton"
    texts = pa.array([f'{{"n": {number:4}}}' for number in range(NUM_RECORDS)], pa.json_())
    ps.write(pa.table({"json": texts}), path, index=False)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'{"n": %4d}' % BAD, b'{"n": \xff\xff\xff\xff}'))
    return path


def _images(folder: Path) -> Path:
    image = ps.encode_images(np.zeros((1, 4, 4, 3), np.uint8), "png").storage[0].as_py()
    path = folder / "x"
    for kind in ("a", "b"):
        (path / kind).mkdir(parents=True)
    for number, data in enumerate(_payloads(lambda number: image, b"not an image")):
        kind = "b" if number > NUM_RECORDS // 2 else "a"
        (path / kind / f"{number:05}.png").write_bytes(data)
    return path


def _array_record() -> bytes:
    payloads = _examples(example(b"\xff" * 5))
    return file_of([chunk(payloads[at : at + 50]) for at in range(0, NUM_RECORDS, 50)])


_NPY = _saved(lambda out: np.save(out, np.arange(3.0)))
_NPZ = _saved(lambda out: np.savez(out, a=np.arange(3.0)))
_MAP = b"\x81\xa1a\xa1b"
_JPEG = b"\xff\xd8\xff\xe0"

CASES: dict[str, dict[str, Make]] = {
    "webdataset": {
        "twice": _tar("cls", b"1", ("cls", b"1"), ("cls", b"2")),
        "case": _tar("txt", b"1", ("TXT", b"1"), ("txt", b"2")),
        "name": _tar("txt", b"1", ("txt", b"1"), ("\udcff", b"2")),
        "number": _tar("cls", b"1", ("cls", b"cat")),
        "text": _tar("txt", b"1", ("txt", b"\xff")),
        "json": _tar("json", b"{}", ("json", b"\xff")),
        "npy cut": _tar("npy", _NPY, ("npy", _NPY[:-3])),
        "npy": _tar("npy", _NPY, ("npy", b"none")),
        "npz": _tar("npz", _NPZ, ("npz", _NPZ[:-30])),
        "msgpack": _tar("mp", _MAP, ("mp", _MAP[:-1])),
        "msgpack text": _tar("mp", _MAP, ("mp", b"\x81\xa1a\xa1\xff")),
        "cbor": _tar("cbor", b"\xa1\x61a\x01", ("cbor", b"\xa1\x61")),
        "gzip": _tar("txt.gz", gzip.compress(b"1"), ("txt.gz", b"none")),
        "gzip cut": _tar("txt.gz", gzip.compress(b"1"), ("txt.gz", gzip.compress(b"1")[:-9])),
        "gzip text": _tar("txt.gz", gzip.compress(b"1"), ("txt.gz", gzip.compress(b"\xff"))),
        "gzip number": _tar("cls.gz", gzip.compress(b"1"), ("cls.gz", gzip.compress(b"cat"))),
        "own number": _own_tar(pa.array(np.arange(NUM_RECORDS) + 0.5), b"none"),
        "own list": _own_tar(pa.array([[{"a": "text"}]] * NUM_RECORDS), b"]"),
    },
    "tfrecord": {
        "value": _file("x.tfrecord", lambda: frames.file_of(_examples(example(b"\xff" * 5)))),
        "message": _file("x.tfrecord", lambda: frames.file_of(_examples(b"\xff\xff"))),
    },
    "arrayrecord": {"value": _file("x.array_record", _array_record)},
    "recordio": {
        "header": _file(
            "x.rec",
            lambda: mxnet_rules.file_of(
                _payloads(lambda n: mxnet_rules.pack(1.0, _JPEG + b"%d" % n, n), b"cut")
            ),
        ),
        "labels": _file(
            "x.rec",
            lambda: mxnet_rules.file_of(
                _payloads(
                    lambda n: mxnet_rules.pack(1.0, _JPEG + b"%d" % n, n),
                    struct.pack("<IfQQ", 9999, 1.0, 0, 0),
                )
            ),
        ),
    },
    "msgpack": {
        "text": _file(
            "x.msgpack", lambda: b"".join(_payloads(lambda n: _MAP, b"\x81\xa1a\xa1\xff"))
        ),
        "no map": _file("x.msgpack", lambda: b"".join(_payloads(lambda n: _MAP, b"\x05"))),
    },
    "mds": {
        "text": _file(
            "x.mds", lambda: one_column("str", _payloads(lambda number: b"abcd", b"\xff"))
        )
    },
    "npy": {"text": _file("x.npy", lambda: _saved(lambda out: np.save(out, _codes())))},
    "npz": {
        "text": _file(
            "x.npz",
            lambda: _saved(lambda out: np.savez(out, id=np.arange(NUM_RECORDS), s=_codes())),
        )
    },
    "hdf5": {"text": _hdf5},
    "parquet": {"text": _file("x.parquet", _parquet)},
    "arrow": {"text": _file("x.arrow", _arrow)},
    "beton": {"text": _beton},
    "imagefolder": {"image": _images},
}
