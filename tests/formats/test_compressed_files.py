"""Members and streams as penstock writes them, and what tells a compressed file."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from pathlib import Path

import pytest
from test_compression import full_header_member, inflate, sample

import frames
import penstock as ps
from penstock._core import (
    Buffer,
    Inflater,
    KernelError,
    ZlibDeflater,
    gzip_member,
    inflate_member,
    inflate_members,
    member_head,
)
from reading import index_of

GIB = 1 << 30


def test_members_with_records_are_found_by_hopping_and_inflated() -> None:
    plain = sample(random.Random(10), 300_000)
    source, parts = Buffer.from_bytes(plain), []
    for at in range(0, len(plain), 40_000):
        length = min(40_000, len(plain) - at)
        parts.append(gzip_member(source, at, length, at // 1000, 6).to_bytes())
    file = b"".join(parts)
    assert gzip.decompress(file) == plain
    assert inflate("gzip", file).plain == plain
    data, at, places = Buffer.from_bytes(file), 0, []
    while at < len(file):
        size, records = member_head(data, at)
        assert records == len(places) * 40
        places.append((at, size))
        at += size
    assert inflate_members(data, places, GIB).to_bytes() == plain
    assert inflate_member(data, *places[1], GIB).to_bytes() == plain[40_000:80_000]
    assert inflate_members(data, [], GIB).to_bytes() == b""
    with pytest.raises(KernelError):
        inflate_members(data, places, len(plain) - 1)


def test_members_of_other_programs_have_no_head_but_inflate_in_one_call() -> None:
    file = full_header_member(b"plain bytes")
    data = Buffer.from_bytes(file)
    assert member_head(data, 0) is None
    assert member_head(data, len(file) + 5) is None
    assert inflate_member(data, 0, len(file), GIB).to_bytes() == b"plain bytes"
    for cut in range(len(file)):
        with pytest.raises(KernelError):
            inflate_member(data, 0, cut, GIB)


def test_inflating_in_one_call_checks_sum_length_and_place() -> None:
    good = gzip.compress(b"one")
    for bad, byte in [
        (good[:-8] + b"\0\0\0\0" + good[-4:], len(good) - 8),
        (good[:-4] + struct.pack("<I", 4), 10),
        (good[:-4] + struct.pack("<I", 2), 10),
        (good + good, 10),
    ]:
        with pytest.raises(KernelError) as caught:
            inflate_member(Buffer.from_bytes(bad), 0, len(bad), GIB)
        assert caught.value.args[0].byte == byte
    with pytest.raises(KernelError):
        inflate_member(Buffer.from_bytes(good), 2**63, 2**63, GIB)


def test_the_header_that_is_written_is_the_same_every_time() -> None:
    plain = Buffer.from_bytes(b"record" * 1000)
    member = gzip_member(plain, 0, 6000, 1000, 6).to_bytes()
    assert member[:16].hex() == "1f8b08040000000000030c0050530800"
    assert struct.unpack("<II", member[16:24]) == (len(member), 1000)
    assert gzip_member(plain, 0, 6000, 1000, 6).to_bytes() == member
    sizes = [len(gzip_member(plain, 0, 6000, 1000, level)) for level in range(13)]
    assert sizes[0] > 6000 > sizes[1] >= sizes[12]


def test_an_empty_member_is_never_written() -> None:
    with pytest.raises(KernelError):
        gzip_member(Buffer.from_bytes(b"abc"), 1, 0, 0, 6)
    with pytest.raises(ValueError, match="beyond the buffer"):
        gzip_member(Buffer.from_bytes(b"abc"), 1, 3, 1, 6)
    for level in (-1, 13):
        with pytest.raises(KernelError):
            gzip_member(Buffer.from_bytes(b"abc"), 0, 3, 1, level)


@pytest.mark.parametrize("level", range(10))
def test_a_zlib_stream_written_in_pieces_is_read_by_zlib(level: int) -> None:
    rng = random.Random(level)
    plain = sample(rng, 300_000)
    deflater, source, at, parts = ZlibDeflater(level), Buffer.from_bytes(plain), 0, []
    while at < len(plain):
        length = rng.randrange(100_000)
        parts.append(deflater.push(source.slice(at, length)).to_bytes())
        at += length
    stream = b"".join([*parts, deflater.finish().to_bytes()])
    assert zlib.decompress(stream) == plain
    assert inflate("zlib", stream).plain == plain
    with pytest.raises(KernelError):
        deflater.finish()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="known: gzip, zlib"):
        Inflater("bz2")
    with pytest.raises(ValueError, match="out_bytes"):
        Inflater("gzip").push(Buffer.from_bytes(b""), True, 0)
    with pytest.raises(KernelError):
        ZlibDeflater(10)


@pytest.mark.parametrize("window_bits", range(9, 16))
@pytest.mark.parametrize("level", [0, 1, 9])
def test_zlib_files_of_any_window_are_recognised_by_their_bytes(
    tmp_path: Path, window_bits: int, level: int
) -> None:
    path = tmp_path / "x"
    payloads = [b"%d" % number * 50 for number in range(500)]
    engine = zlib.compressobj(level, zlib.DEFLATED, window_bits)
    path.write_bytes(engine.compress(frames.file_of(payloads)) + engine.flush())
    assert [row["record"] for row in ps.open(path, raw=True)] == payloads
    assert len(ps.open(path, raw=True, compression="zlib")) == 500
    assert ps.verify(path).ok


@pytest.mark.parametrize("said", ["gzip", "zlib", ""])
def test_what_is_said_of_the_compression_counts_with_an_index_as_well(
    tmp_path: Path, said: str
) -> None:
    true = "" if said else "gzip"
    path = tmp_path / "a.tfrecord"
    ps.write({"i": range(10)}, path, compression=true or None)
    assert index_of(tmp_path / "a.tfrecord").exists()
    with pytest.raises(ps.FormatError):
        ps.open(path, compression=said, raw=True).take([0, 5])
    assert ps.open(path).take([0, 5])["i"].to_pylist() == [0, 5], "the index is as it was"


@pytest.mark.parametrize("window_bits", [9, 12, 15])
def test_empty_zlib_files_of_any_window(tmp_path: Path, window_bits: int) -> None:
    engine = zlib.compressobj(6, zlib.DEFLATED, window_bits)
    (tmp_path / "z.bin").write_bytes(engine.compress(b"") + engine.flush())
    assert len(ps.open(tmp_path / "z.bin", raw=True, index="never")) == 0
