"""Small files that contain, or claim to contain, a huge amount of data: `size` bytes each, mostly zeros."""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz import riegeli_files
from fuzz.lies import varint
from fuzz.mds_shards import one_column
from fuzz.tfrecords import framed, head

SMALL = 16 << 20
"""The size of a bomb for the fuzzer: large compared with its file, but small enough to be read many times."""


def tfrecords(size: int = SMALL) -> list[bytes]:
    """One large record; a head without its record; an Example of numbers that take eight times their bytes in
    memory."""
    zeros = framed(bytes(size))
    packed = _field(
        1, _field(1, _field(1, b"n") + _field(2, _field(3, _field(1, bytes(size // 8)))))
    )
    return [
        gzip.compress(zeros, 9, mtime=0),
        zlib.compress(zeros, 9),
        gzip.compress(head(size * 8) + bytes(size), 9, mtime=0),
        gzip.compress(framed(packed), 9, mtime=0),
        gzip.compress(framed(b"") * (size // 16), 9, mtime=0),
    ]


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def tars(size: int = SMALL) -> list[bytes]:
    """A large member of a compressed archive, and compressed members of a plain archive."""
    zeros, text = bytes(size), b'"' + b"a" * size + b'"'
    npy = _npy(size)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("x.npy"), npy, zipfile.ZIP_DEFLATED)
    inner = {
        "bin.gz": zeros,
        "npy.gz": npy,
        "json.gz": text,
        "txt.gz": text,
        "mp.gz": b"\xc6" + struct.pack(">I", size) + zeros,
    }
    plain = _tar("0.bin", zeros) + bytes(1024)
    made = [
        _tar(f"0.{name}", gzip.compress(data, 9, mtime=0)) + bytes(1024)
        for name, data in inner.items()
    ]
    return [gzip.compress(plain, 9, mtime=0), *made, _tar("0.npz", out.getvalue()) + bytes(1024)]


def _tar(name: str, data: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def _npy(size: int) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.zeros((1, size), np.uint8))
    return out.getvalue()


def npzs(size: int = SMALL) -> list[bytes]:
    """An array of one record, and an array of many."""
    made: list[bytes] = []
    for array in (np.zeros((1, size), np.uint8), np.zeros(size, np.uint8)):
        out = io.BytesIO()
        np.savez_compressed(out, x=array)
        made.append(out.getvalue())
    return made


def mds(size: int = SMALL) -> dict[str, bytes]:
    """A shard of one record for each codec, named by the ending of the codec."""
    plain = one_column("bytes", [bytes(size)])
    codecs = {"zstd": "zstd", "br": "brotli", "snappy": "snappy"}
    packed = {end: pa.Codec(name).compress(plain, asbytes=True) for end, name in codecs.items()}
    return {**packed, "gz": gzip.compress(plain, 9, mtime=0), "bz2": bz2.compress(plain)}


def array_records(size: int = SMALL) -> list[bytes]:
    """A chunk of one record for each codec, and a chunk of many records, whose sizes are compressed."""
    made: list[bytes] = []
    for letter, name in ((b"z", "zstd"), (b"b", "brotli"), (b"s", "snappy")):
        for count, sizes, values in ((1, varint(size), bytes(size)), (size, bytes(size), b"")):
            packed = [_sized(name, part) for part in (sizes, values)]
            data = letter + varint(len(packed[0])) + b"".join(packed)
            if len(data) < 48 << 10:
                made.append(
                    riegeli_files.file_of([riegeli_files.chunk_of(data, count, len(values))])
                )
    return made


def _sized(name: str, plain: bytes) -> bytes:
    return varint(len(plain)) + pa.Codec(name).compress(plain, asbytes=True)


def parquets(size: int = SMALL) -> list[bytes]:
    """One huge text in a dictionary, used by all rows; at the top level and nested."""
    rows = 2000
    place = pa.array(np.zeros(rows, np.int32))
    text = pa.DictionaryArray.from_arrays(place, pa.array(["x" * (size // rows * 4)]))
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, text)
    inside = pa.StructArray.from_arrays([text], ["a"])
    made: list[bytes] = []
    for column in (
        text,
        lists,
        inside,
        pa.ListArray.from_arrays(offsets, inside),
        pa.nulls(size, pa.int8()),
    ):
        out = io.BytesIO()
        how: Any = {"compression": "zstd", "store_schema": False}
        pq.write_table(pa.table({"s": column}), out, dictionary_pagesize_limit=64 << 20, **how)
        made.append(out.getvalue())
    return made


def arrows(size: int = SMALL) -> list[bytes]:
    """One batch of zeros for each codec."""
    made: list[bytes] = []
    for codec in ("zstd", "lz4"):
        for column in (pa.array(np.zeros(size, np.uint8)), pa.array([bytes(size)])):
            out = io.BytesIO()
            batch = pa.record_batch([column], ["x"])
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_file(out, batch.schema, options=options) as writer:
                writer.write(batch)
            made.append(out.getvalue())
    return made


def hdf5(size: int = SMALL) -> list[bytes]:
    """A chunk of zeros, and chunks that were never written."""
    made: list[bytes] = []
    for shape in ((1, size), (size,)):
        for is_written in (True, False):
            out = io.BytesIO()
            with h5py.File(out, "w") as file:
                one = file.create_dataset(
                    "x", shape, "u1", chunks=shape, compression="gzip", compression_opts=9
                )
                if is_written:
                    one[...] = 0
            made.append(out.getvalue())
    return made


def msgpacks(size: int = SMALL) -> list[bytes]:
    """Heads that claim a huge number of values or bytes."""
    claims = [kind + b"\x7f\xff\xff\xff" for kind in (b"\xdd", b"\xdf", b"\xdb", b"\xc6")]
    return [
        *claims,
        b"\x81\xa1a" + claims[0] + bytes(1000),
        b"\x81\xa1a\xdc\xff\xff" + b"\xc0" * 0xFFFF,
    ]


def pngs(side: int = 65_000) -> list[bytes]:
    """An image that claims to be large but has no data, and one whose rows are zeros."""
    rows = zlib.compress(bytes(1 << 20), 9)
    return [
        _png(side, side, zlib.compress(b"")),
        _png(side, side, rows),
        _png(1, (1 << 31) - 1, rows),
    ]


def _png(width: int, height: int, data: bytes) -> bytes:
    def part(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", data) + part(b"IEND", b"")


def pictures(side: int = 65_000) -> list[bytes]:
    """Images of every codec whose heads claim this many pixels per side."""
    from fuzz import images

    gif = (
        b"GIF89a"
        + struct.pack("<HHBBB", side, side, 0, 0, 0)
        + b","
        + struct.pack("<HHHHB", 0, 0, side, side, 0)
    )
    jpegs = [_with_jpeg_side(data, side) for data in images.jpegs()]
    ppms = [b"P6 %d %d 255\n" % (side, side) + bytes(100), b"P5 1 4294967295 255\n"]
    bmp = b"BM" + bytes(8) + struct.pack("<IIiiHH", 54, 40, side, side, 1, 24) + bytes(24 + 100)
    webp = [_with_webp_side(data) for data in images.webps()]
    return [*pngs(side), gif + b"\x02\x00;", *jpegs, *ppms, bmp, *webp]


def _with_jpeg_side(data: bytes, side: int) -> bytes:
    at = max(data.find(b"\xff\xc0"), data.find(b"\xff\xc2"))
    return data[: at + 5] + struct.pack(">HH", side, side) + data[at + 9 :] if at > 0 else data


def _with_webp_side(data: bytes) -> bytes:
    """An image with the largest sides that WebP allows, 16,383."""
    if data[12:16] == b"VP8 ":
        return data[:26] + struct.pack("<HH", 0x3FFF, 0x3FFF) + data[30:]
    if data[12:16] == b"VP8L":
        return data[:21] + struct.pack("<I", 0x0FFFFFFF) + data[25:]
    return data


@functools.cache
def of(name: str) -> list[bytes]:
    """The bombs for a target, made once."""
    made = globals()[name]()
    return list(made.values()) if isinstance(made, dict) else made
