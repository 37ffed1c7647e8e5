"""The facts about framings in Python agree with the kernels."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import frames
from penstock import _core
from penstock.framing.framings import RECORDIO, TFRECORD


@pytest.mark.parametrize("payload", [b"", b"x", b"some payload" * 100])
def test_a_frame_has_the_size_and_the_checksum_that_python_expects(payload: bytes) -> None:
    framed = TFRECORD.frames([payload])
    data = framed.data.to_bytes()
    assert data == frames.frame(payload)
    assert len(data) == TFRECORD.frame_bytes(len(payload))
    assert data[TFRECORD.head_bytes : len(data) - TFRECORD.tail_bytes] == payload
    tail = data[len(data) - TFRECORD.tail_bytes :]
    assert TFRECORD.proves(_core.Buffer.from_bytes(payload), tail)
    assert not TFRECORD.proves(_core.Buffer.from_bytes(payload + b"x"), tail)
    assert list(TFRECORD.lengths(data[: TFRECORD.head_bytes])) == [len(payload)]


def test_any_one_wrong_byte_of_a_head_leaves_the_true_length_among_the_possible() -> None:
    head = frames.head(1234)
    for place in range(len(head)):
        for flip in (1, 0x80, 0xFF):
            wrong = bytearray(head)
            wrong[place] ^= flip
            assert 1234 in TFRECORD.lengths(bytes(wrong)), (place, flip)


def part(flag: int, payload: bytes) -> bytes:
    head = struct.pack("<II", 0xCED7230A, flag << 29 | len(payload))
    return head + payload + bytes(-len(payload) % 4)


# A record of three parts, whose first is empty, between records of one.
SELF_DELIMITED = [
    part(0, b"one"),
    part(1, b"") + part(2, b"12345678") + part(3, b"9"),
    part(0, b""),
    part(0, bytes(5000)),
]


def test_a_frame_that_contains_its_size_is_its_payload() -> None:
    data = b"".join(SELF_DELIMITED)
    buffer = _core.Buffer.from_bytes(data)
    for last in (True, False):
        frames, consumed, need, fault = _core.walk("recordio", buffer, 100, 1 << 30, last)
        assert (consumed, need, fault) == (len(data), 0, None)
        assert pa.array(frames.views()).to_pylist() == SELF_DELIMITED
        lengths = np.array([len(frame) for frame in SELF_DELIMITED])
        starts = pa.array(frames.starts()).to_numpy()
        assert starts.tolist() == (100 + np.cumsum(lengths) - lengths).tolist()
        assert RECORDIO.frame_bytes(lengths).tolist() == lengths.tolist()
    crcs = [_core.Buffer.from_bytes(frame).crc32c() for frame in SELF_DELIMITED]
    assert pa.array(frames.checksums()).to_pylist() == crcs
    assert not frames.verify()
    assert not frames.verify(pa.array(crcs, pa.uint32()))
    crcs[2] ^= 1
    (fault,) = frames.verify(pa.array(crcs, pa.uint32()))
    assert (fault.kind, fault.record) == ("data_checksum", 2)


def test_the_index_of_such_frames_equals_the_walk(tmp_path: Path) -> None:
    # The large record is many times a window, and a part of another crosses a boundary.
    long = part(1, bytes(1 << 20)) + part(2, bytes(3 << 20)) + part(3, b"end")
    frames = [*SELF_DELIMITED, long, *SELF_DELIMITED]
    path = tmp_path / "frames"
    path.write_bytes(b"".join(frames))
    starts, stored, fault = _core.index_file("recordio", _core.File(str(path)), 1 << 30)
    assert fault is None
    edges = np.cumsum([0, *(len(frame) for frame in frames)])
    assert pa.array(starts).to_pylist() == edges.tolist()
    assert pa.array(stored).to_pylist() == [_core.Buffer.from_bytes(f).crc32c() for f in frames]
    # A record beyond the limit affects no other record: its end is known from its heads.
    starts, limited, fault = _core.index_file("recordio", _core.File(str(path)), 1 << 20)
    assert fault is None
    assert pa.array(starts).to_pylist() == edges.tolist()
    known, limited = pa.array(stored).to_pylist(), pa.array(limited).to_pylist()
    assert limited == known
    path.write_bytes(b"".join(frames)[:-1])
    starts, stored, fault = _core.index_file("recordio", _core.File(str(path)), 1 << 30)
    assert (fault.kind, fault.record) == ("truncated", len(frames) - 1)
    assert len(pa.array(stored)) == len(frames) - 1


def test_after_damage_such_frames_are_found_if_they_lead_to_the_end() -> None:
    data = b"".join(SELF_DELIMITED)
    buffer = _core.Buffer.from_bytes(bytes(3) + data)
    assert _core.next_head("recordio", buffer, 0) == (3, 12)
    assert _core.next_head("recordio", buffer, 4) == (15, 36)
    assert _core.next_head("recordio", _core.Buffer.from_bytes(bytes(100)), 0) is None
