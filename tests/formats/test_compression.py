"""Inflating and deflating in the core, with Python's own zlib and gzip as oracle."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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


@dataclass
class Inflated:
    """What a whole file gave."""

    plain: bytes = b""
    fault: object = None
    points: list[tuple[int, int, bytes]] = field(default_factory=list)
    members: list[tuple[int, int]] = field(default_factory=list)
    findings: list[object] = field(default_factory=list)

    @property
    def kind(self) -> str | None:
        return None if self.fault is None else self.fault.kind


def drain(inflater: Inflater, data: bytes, in_bytes: int = 1 << 16, out_bytes: int = 1 << 20):
    """Inflate all of `data`, pushing at most `in_bytes` in one call."""
    result, at, parts, source = Inflated(), 0, [], Buffer.from_bytes(data)
    while not inflater.finished:
        at_end = at + in_bytes >= len(data)
        try:
            piece, consumed = inflater.push(source.slice(at, in_bytes), at_end, out_bytes)
        except KernelError as error:
            result.fault = error.args[0]
            break
        assert len(piece) <= out_bytes
        assert consumed or len(piece) or inflater.finished, "stands still"
        at += consumed
        parts.append(piece.to_bytes())
    result.plain = b"".join(parts)
    result.points = inflater.take_points()
    result.members = inflater.take_members()
    result.findings = inflater.take_findings()
    return result


def inflate(container: str, data: bytes, **sizes: int) -> Inflated:
    return drain(Inflater(container), data, **sizes)


def sample(rng: random.Random, length: int) -> bytes:
    """Text, noise and runs, so that deflate uses all of its block types."""
    parts, size, most = [], 0, max(2, min(5000, length // 8))
    while size < length:
        choice = rng.randrange(4)
        if choice == 0:
            part = rng.randbytes(rng.randrange(1, most))
        elif choice == 1:
            part = bytes(rng.randrange(1, most))
        else:
            part = " ".join(str(rng.randrange(5000)) for _ in range(most // 5 + 1)).encode()
        parts.append(part)
        size += len(part)
    return b"".join(parts)[:length]


def full_header_member(plain: bytes) -> bytes:
    """A gzip member with every optional header field."""
    head = bytes([0x1F, 0x8B, 8, 2 | 4 | 8 | 16, 9, 9, 9, 9, 0, 3]) + struct.pack("<H", 7)
    head += b"AB\x03\x00xyz" + b"name.txt\0" + b"a comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflater.compress(plain) + deflater.flush()
    return head + body + struct.pack("<II", zlib.crc32(plain), len(plain))


def zlib_blocks(plain: bytes, level: int = 6) -> bytes:
    """A zlib stream flushed now and then, so that it also has blocks of length 0."""
    deflater = zlib.compressobj(level)
    parts = []
    for at in range(0, len(plain), 30_000):
        parts.append(deflater.compress(plain[at : at + 30_000]))
        if at % 60_000 == 0:
            parts.append(deflater.flush(zlib.Z_SYNC_FLUSH))
    return b"".join([*parts, deflater.flush()])


@pytest.mark.parametrize("seed", range(12))
def test_any_data_cut_into_any_members_reads_back(seed: int) -> None:
    rng = random.Random(seed)
    plain = sample(rng, rng.randrange(200_000))
    cuts = sorted(rng.randrange(len(plain) + 1) for _ in range(rng.randrange(8)))
    parts = [plain[a:b] for a, b in zip([0, *cuts], [*cuts, len(plain)], strict=True)]
    file = b"".join(
        full_header_member(part) if rng.random() < 0.3 else gzip.compress(part, rng.randrange(10))
        for part in parts
    )
    assert gzip.decompress(file) == plain
    sizes = {"in_bytes": rng.randrange(1, 5000), "out_bytes": rng.randrange(1, 50_000)}
    found = inflate("gzip", file, **sizes)
    assert (found.plain, found.fault) == (plain, None)
    stream = zlib_blocks(plain, rng.randrange(10))
    found = inflate("zlib", stream, **sizes)
    assert (found.plain, found.fault) == (plain, None)


def test_positions_and_members_are_counted_from_the_start_of_the_file() -> None:
    parts = [b"one" * 50, b"", b"two" * 70]
    packed = [gzip.compress(part) for part in parts]
    inflater = Inflater("gzip", point_bytes=1)
    found = drain(inflater, b"".join(packed), in_bytes=7)
    starts = [0, len(packed[0]), len(packed[0]) + len(packed[1])]
    assert found.members == list(zip(starts, [0, 150, 150], strict=True))
    assert inflater.compressed_bytes == sum(map(len, packed))
    assert inflater.plain_bytes == 360
    assert inflater.num_members == 3
    assert [point[:2] for point in found.points if not point[2]] == [(0, 0), (8 * starts[1], 150)]


def test_empty_members_are_read_over_and_named_but_for_the_last() -> None:
    one, empty, two = gzip.compress(b"one"), gzip.compress(b""), gzip.compress(b"two")
    inflater = Inflater("gzip")
    found = drain(inflater, empty + one + empty + empty + two + empty)
    assert (found.plain, found.fault) == (b"onetwo", None)
    starts = [0, len(empty + one), len(empty + one + empty)]
    assert [(f.kind, f.byte) for f in found.findings] == [("empty_member", at) for at in starts]
    assert inflater.num_empty_members == 3
    alone = inflate("gzip", empty)
    assert (alone.plain, alone.fault, alone.findings) == (b"", None, [])


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_a_file_without_bytes_is_finished(container: str) -> None:
    found = inflate(container, b"")
    assert (found.plain, found.fault) == (b"", None)


@pytest.mark.parametrize("container", ["gzip", "zlib"])
@pytest.mark.parametrize("in_bytes", [1, 1000])
def test_every_truncation_is_a_fault_at_its_byte_after_what_was_good(
    container: str, in_bytes: int
) -> None:
    plain = sample(random.Random(3), 900)
    file = full_header_member(plain) if container == "gzip" else zlib.compress(plain)
    data_end = len(file) - (8 if container == "gzip" else 4)
    for cut in range(1, len(file)):
        found = inflate(container, file[:cut], in_bytes=in_bytes)
        assert found.kind == ("truncated" if cut < data_end else "cut_trailer")
        assert found.fault.byte == cut
        assert plain.startswith(found.plain)
        if cut >= data_end:
            assert found.plain == plain


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_no_flipped_bit_gives_wrong_bytes_without_a_fault(container: str) -> None:
    plain = sample(random.Random(4), 700)
    file = full_header_member(plain) if container == "gzip" else zlib.compress(plain)
    silent = []
    for bit in range(len(file) * 8):
        bad = bytearray(file)
        bad[bit // 8] ^= 1 << (bit % 8)
        found = inflate(container, bytes(bad), in_bytes=50)
        if found.fault is None:
            assert found.plain == plain
            silent.append(bit)
    # A few bits carry nothing: unused bits of the last byte, or another way back into a run.
    assert len(silent) < len(file) // 20, silent


def test_a_flip_in_a_plain_header_is_harmless_only_in_fields_that_inflating_ignores() -> None:
    plain = b"some plain bytes" * 9
    file = gzip.compress(plain, mtime=0)
    for bit in range(10 * 8):
        bad = bytearray(file)
        bad[bit // 8] ^= 1 << (bit % 8)
        found = inflate("gzip", bytes(bad))
        harmless = bit // 8 >= 4 or bit == 3 * 8  # mtime, XFL, OS; the hint that it is text
        assert (found.fault is None) == harmless, bit
        if harmless:
            assert found.plain == plain


def test_what_inflated_before_a_fault_comes_before_the_fault() -> None:
    plain = sample(random.Random(5), 300_000)
    file = bytearray(gzip.compress(plain))
    file[-6] ^= 1
    inflater = Inflater("gzip")
    piece, consumed = inflater.push(Buffer.from_bytes(bytes(file)), True, 1 << 20)
    assert piece.to_bytes() == plain
    for _ in range(2):
        with pytest.raises(KernelError) as caught:
            inflater.push(Buffer.from_bytes(bytes(file[consumed:])), True, 1 << 20)
        fault = caught.value.args[0]
        assert (fault.kind, fault.byte) == ("compression_checksum", len(file) - 8)
        assert fault.found == zlib.crc32(plain)
    assert not inflater.finished


def test_a_wrong_length_and_a_wrong_adler_are_reported_with_both_values() -> None:
    bad = gzip.compress(b"12345")[:-4] + struct.pack("<I", 7)
    fault = inflate("gzip", bad).fault
    assert (fault.kind, fault.byte) == ("compression_checksum", len(bad) - 4)
    assert (fault.expected, fault.found) == (7, 5)
    bad = zlib.compress(b"12345")[:-4] + b"\0\0\0\0"
    fault = inflate("zlib", bad).fault
    assert (fault.kind, fault.expected, fault.found) == (
        "compression_checksum",
        0,
        zlib.adler32(b"12345"),
    )


@pytest.mark.parametrize(
    "tail", [b"x", b"\0", bytes(512), b"garbage", b"\x1f", b"\x1f\x8b", b"\x1f\x8b\x08\x00\x00"]
)
@pytest.mark.parametrize("in_bytes", [1, 3, 1000])
def test_bytes_after_the_end_are_a_fault(tail: bytes, in_bytes: int) -> None:
    for container, good in [("gzip", gzip.compress(b"good")), ("zlib", zlib.compress(b"good"))]:
        found = inflate(container, good + tail, in_bytes=in_bytes)
        assert found.plain == b"good"
        assert (found.kind, found.fault.byte) == ("trailing_bytes", len(good))


def test_a_cut_head_of_a_next_member_says_how_many_bytes_there_are() -> None:
    good = gzip.compress(b"good")
    for cut in range(1, 10):
        fault = inflate("gzip", good + good[:cut]).fault
        assert (fault.kind, fault.found) == ("trailing_bytes", cut)
    assert inflate("gzip", good + good[:12]).kind == "truncated"


def test_a_second_zlib_stream_is_a_fault_unless_asked_for() -> None:
    first, second = zlib.compress(b"one "), zlib.compress(b"two")
    found = inflate("zlib", first + second)
    assert found.plain == b"one "
    assert (found.kind, found.fault.byte) == ("second_stream", len(first))
    found = drain(Inflater("zlib", join_streams=True), first + second)
    assert (found.plain, found.fault) == (b"one two", None)
    assert [(f.kind, f.byte) for f in found.findings] == [("second_stream", len(first))]


@pytest.mark.parametrize("container", ["gzip", "zlib"])
@pytest.mark.parametrize("point_bytes", [1, 5_000, 100_000])
def test_from_every_seek_point_the_rest_is_equal(container: str, point_bytes: int) -> None:
    rng = random.Random(6)
    plain = sample(rng, 400_000)
    if container == "gzip":
        file = gzip.compress(plain[:250_000]) + gzip.compress(b"") + gzip.compress(plain[250_000:])
    else:
        file = zlib_blocks(plain)
    inflater = Inflater(container, point_bytes)
    found = drain(inflater, file, in_bytes=10_000, out_bytes=30_000)
    assert (found.plain, found.fault) == (plain, None)
    starts = [point[1] for point in found.points]
    assert starts == sorted(starts)
    assert len(starts) >= 4
    for bit, start, window in found.points:
        assert len(window) <= 32 << 10
        assert plain[:start].endswith(window)
        inside = Inflater.at_point(container, bit, start, window)
        rest = drain(inside, file[bit // 8 :], in_bytes=rng.randrange(1, 9000))
        assert rest.fault is None
        assert rest.plain == plain[start:]
        assert (inside.plain_bytes, inside.compressed_bytes) == (len(plain), len(file))


def test_after_a_seek_point_faults_keep_their_places_in_the_file() -> None:
    plain = sample(random.Random(7), 300_000)
    first, second = gzip.compress(plain), bytearray(gzip.compress(b"the second member"))
    found = drain(Inflater("gzip", 50_000), first)
    bit, start, window = found.points[-1]
    assert window
    second[-5] ^= 1
    file = first + bytes(second)
    rest = drain(Inflater.at_point("gzip", bit, start, window), file[bit // 8 :])
    assert rest.plain == plain[start:] + b"the second member"
    assert (rest.kind, rest.fault.byte) == ("compression_checksum", len(file) - 8)
    cut = drain(Inflater.at_point("gzip", bit, start, window), first[bit // 8 : -9])
    assert (cut.kind, cut.fault.byte) == ("truncated", len(first) - 9)


def test_a_wrong_seek_point_ends_in_a_fault_or_in_some_bytes_but_ends() -> None:
    plain = sample(random.Random(8), 50_000)
    file = gzip.compress(plain)
    for bit in range(0, len(file) * 8, 997):
        inside = Inflater.at_point("gzip", bit, 0, b"wrong window")
        drain(inside, file[bit // 8 :])
    with pytest.raises(KernelError):
        Inflater.at_point("gzip", 3, 0, b"")


def test_a_bomb_is_inflated_only_as_far_as_asked() -> None:
    bomb = gzip.compress(bytes(10_000_000), 9)
    inflater, at, total = Inflater("gzip"), 0, 0
    source = Buffer.from_bytes(bomb)
    while not inflater.finished:
        piece, consumed = inflater.push(source.slice(at, len(bomb)), True, 1 << 20)
        assert len(piece) <= 1 << 20
        at, total = at + consumed, total + len(piece)
    assert total == 10_000_000
    with pytest.raises(KernelError) as caught:
        inflate_member(source, 0, len(bomb), 1 << 20)
    assert caught.value.args[0].kind == "limit"


def test_asking_for_a_huge_output_costs_no_memory() -> None:
    piece, _ = Inflater("gzip").push(Buffer.from_bytes(gzip.compress(b"small")), True, 1 << 60)
    assert piece.to_bytes() == b"small"


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_hostile_bytes_come_to_an_end(container: str) -> None:
    rng = random.Random(9)
    good = gzip.compress(sample(rng, 5000)) if container == "gzip" else zlib.compress(b"ab" * 2500)
    for _ in range(1500):
        bad = bytearray(good)
        for _ in range(rng.randrange(1, 6)):
            bad[rng.randrange(10 if container == "gzip" else 2, len(bad))] = rng.randrange(256)
        data = bytes(bad[: rng.randrange(len(bad)) + 1])
        sizes = {"in_bytes": rng.randrange(1, 700), "out_bytes": rng.randrange(1, 3000)}
        found = drain(Inflater(container, rng.randrange(3) * 500), data, **sizes)
        assert found.fault is not None or found.plain


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
