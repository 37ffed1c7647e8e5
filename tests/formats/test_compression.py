"""Inflating and deflating in the core, with Python's own zlib and gzip as oracle."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from dataclasses import dataclass, field

import pytest

from penstock._core import (
    Buffer,
    Inflater,
    KernelError,
    inflate_member,
)


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
