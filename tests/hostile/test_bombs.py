"""Small files that claim to become large: memory stays within batches and limits, whatever the files contain."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from fuzz import bombs
from fuzz.lies import varint
from reading import run_python

GIB = 1 << 30
MOST = 900 << 10
"""The peak memory that a process may have, in KiB: a few batches, and the imported libraries."""

PROGRAM = r"""
import re, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, (12 << 30,) * 2)
import penstock as ps
path, word = sys.argv[1:]
begun = time.monotonic()
try:
    ds = ps.open(path, index="never")
    if word == "take":
        ds.take([0])
    elif word == "loader":
        next(iter(ps.Loader(ds, 1)), None)
    else:
        for batch in ds.scan():
            if time.monotonic() - begun > 3:
                break
except ps.PenstockError as error:
    print(type(error).__name__, error, file=sys.stderr)
print(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
"""


def _dictionary(path: Path, rows: int, size: int) -> None:
    place = pa.array(np.zeros(rows, np.int32))
    column = pa.DictionaryArray.from_arrays(place, pa.array(["x" * size]))
    options: Any = {"compression": "zstd", "store_schema": False}
    pq.write_table(pa.table({"s": column}), path, dictionary_pagesize_limit=64 << 20, **options)


def _of_many_records(path: Path) -> None:
    _dictionary(path, 1 << 20, 4096)


def _of_long_texts(path: Path) -> None:
    _dictionary(path, 5000, 1 << 20)


def _of_missing_values(path: Path) -> None:
    pq.write_table(pa.table({"x": pa.nulls(60_000, pa.binary(16 << 10))}), path)


def _never_written(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for number in range(12):
            shape = (25_000_000,)
            file.create_dataset(f"x{number}", shape, "f8", chunks=shape, compression="gzip")


def _frame(length: int, payload: bytes) -> bytes:
    from penstock._core import Buffer

    def masked(data: bytes) -> bytes:
        crc = Buffer.from_bytes(data).crc32c()
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    head = struct.pack("<Q", length)
    return head + masked(head) + payload + masked(payload)


def _zeros_in_gzip(path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    with path.open("wb") as file:
        # A valid head of a record within the limit, followed by zeros instead of the record.
        file.write(packer.compress(_frame(GIB // 2, b"")[:12]))
        for _ in range(600):
            file.write(packer.compress(bytes(1 << 20)))
        file.write(packer.flush())


def _zeros_in_a_tar(path: Path) -> None:
    packed = gzip.compress(bytes(300 << 20), 9)
    with tarfile.open(path, "w") as file:
        member = tarfile.TarInfo("a.npy.gz")
        member.size = len(packed)
        file.addfile(member, io.BytesIO(packed))


def _zeros_in_an_archive(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("x.npy", "w") as member,
    ):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (400 << 17,)}
        )
        member.write(header.getvalue())
        for _ in range(400):
            member.write(bytes(1 << 20))


def _zeros_in_a_batch(path: Path) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    table = pa.record_batch([pa.array(np.zeros(1 << 27))], ["x"])
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, table.schema, options=options) as w,
    ):
        w.write(table)


def _nested(path: Path, column: Callable[[Any, int], Any]) -> None:
    """One text of 1 MiB in a dictionary, to which 5000 nested values refer."""
    count = 5000
    text = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, np.int32)), pa.array(["x" * (1 << 20)])
    )
    options: Any = {"compression": "zstd", "store_schema": False}
    table = pa.table({"s": column(text, count)})
    pq.write_table(table, path, dictionary_pagesize_limit=64 << 20, **options)


def _lists(ends: Any) -> Callable[[Path], None]:
    def made(text: Any, count: int) -> Any:
        return pa.ListArray.from_arrays(pa.array(ends(count), pa.int32()), text)

    return lambda path: _nested(path, made)


def _in_structures(path: Path) -> None:
    _nested(path, lambda text, _: pa.StructArray.from_arrays([text], ["a"]))


def _in_maps(path: Path) -> None:
    def made(text: Any, count: int) -> Any:
        return pa.MapArray.from_arrays(
            pa.array(range(count + 1), pa.int32()), pa.array(range(count)), text
        )

    _nested(path, made)


def _told_smaller(path: Path) -> None:
    """Texts of 2 GB in all, in a row group that claims to have one byte."""
    column = pa.array([bytes(1 << 20).decode()] * 2000)
    options: Any = {"compression": "zstd", "store_schema": False, "use_dictionary": False}
    pq.write_table(
        pa.table({"s": column}), path, data_page_size=1 << 20, write_batch_size=1, **options
    )
    real = pq.read_metadata(path).row_group(0).total_byte_size
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:-8]
    assert varint(2 * real) in footer
    footer = footer.replace(varint(2 * real), varint(2))
    path.write_bytes(data[:start] + footer + struct.pack("<I", len(footer)) + data[-4:])


BOMBS: dict[str, Callable[[Path], None]] = {
    "many.parquet": _of_many_records,
    "long.parquet": _of_long_texts,
    "null.parquet": _of_missing_values,
    "lists.parquet": _lists(lambda count: range(count + 1)),
    "first.parquet": _lists(lambda count: [0, *[count] * count]),
    "last.parquet": _lists(lambda count: [*[0] * count, count]),
    "structures.parquet": _in_structures,
    "maps.parquet": _in_maps,
    "told.parquet": _told_smaller,
    "never.h5": _never_written,
    "zeros.arrow": _zeros_in_a_batch,
    "zeros.npz": _zeros_in_an_archive,
}


@pytest.fixture(scope="module", params=BOMBS)
def bomb(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each of them, made once for all that is done with it."""
    path = tmp_path_factory.mktemp("bomb") / request.param
    BOMBS[request.param](path)
    return path


@pytest.mark.parametrize("word", ["scan", "take"])
def test_memory_stays_within_a_few_batches(bomb: Path, word: str) -> None:
    assert int(run_python(PROGRAM, str(bomb), word)) < MOST


@pytest.mark.parametrize("make", [_zeros_in_gzip, _zeros_in_a_tar])
def test_one_record_takes_no_more_than_its_limit(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / ("a.tfrecord" if make is _zeros_in_gzip else "a.tar")
    make(path)
    # The memory for one record, once as read and once as decoded.
    assert int(run_python(PROGRAM, str(path), "scan")) < MOST + (2 << 20)


def _held(size: int) -> dict[str, bytes]:
    """For each compressed format, a small file with one record of zeros, or with a huge number of empty records."""
    found = {f"{ending}.mds.{ending}": data for ending, data in bombs.mds(size).items()}
    for name, made in (
        ("tfrecord", bombs.tfrecords), ("array_record", bombs.array_records), ("npz", bombs.npzs),
        ("arrow", bombs.arrows), ("h5", bombs.hdf5), ("tar", bombs.tars), ("msgpack", bombs.msgpacks),
    ):  # fmt: skip
        found |= {f"{place}.{name}": data for place, data in enumerate(made(size))}
    return {f"{name}.gz" if name == "0.tar" else name: data for name, data in found.items()}


@pytest.mark.parametrize("size", [64 << 20, pytest.param(128 << 20, marks=pytest.mark.stress)])
def test_a_compressed_file_takes_a_few_times_the_memory_of_its_contents(
    tmp_path: Path, size: int
) -> None:
    for name, data in _held(size).items():
        assert len(data) < size // 16, name
        (tmp_path / name).write_bytes(data)
        peak = int(run_python(PROGRAM, str(tmp_path / name), "scan"))
        assert peak < (128 << 10) + 4 * (size >> 10), name


def _png(width: int, height: int) -> bytes:
    def part(kind: bytes, body: bytes) -> bytes:
        whole = kind + body
        return struct.pack(">I", len(body)) + whole + struct.pack(">I", zlib.crc32(whole))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + part(b"IHDR", head)
        + part(b"IDAT", zlib.compress(b""))
        + part(b"IEND", b"")
    )


def _gif(width: int, height: int) -> bytes:
    return (
        b"GIF89a"
        + struct.pack("<HHBBB", width, height, 0, 0, 0)
        + b","
        + struct.pack("<HHHHB", 0, 0, width, height, 0)
        + b"\x02\x00;"
    )


@pytest.mark.parametrize(
    "picture", [_png(60_000, 60_000), _png(1, 1 << 31), _gif(65_535, 65_535), _png(16_384, 16_384)]
)
def test_pictures_that_claim_many_pixels_are_refused_or_empty(
    tmp_path: Path, picture: bytes
) -> None:
    path = tmp_path / "a.arrow"
    from penstock import write
    from penstock.columns.types import ImageType

    column = pa.ExtensionArray.from_storage(ImageType(), pa.array([picture]))
    write({"image": column}, path)
    program = PROGRAM.replace(
        "ps.Loader(ds, 1)", "ps.Loader(ds, 1, decode={'image': ps.Image(size=8)})"
    )
    assert int(run_python(program, str(path), "loader")) < MOST + (1 << 20)


def test_pictures_of_every_codec_are_refused_by_what_their_heads_claim() -> None:
    limits = ps.Limits(image_pixels=1 << 20)
    refused = 0
    for picture in bombs.pictures():
        try:
            ps.decode_images([picture], mode="stored", limits=limits)
        except ps.LimitError:
            refused += 1
        except ps.FormatError:
            assert picture[:3] in (b"GIF", b"BM\0"), "codecs of TensorFlow's alone"
        else:
            assert picture[12:16] == b"VP8X", "whose head is left as it was"
    assert refused >= 15
