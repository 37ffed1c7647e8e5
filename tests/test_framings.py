"""What Python knows of a framing is what the kernels do."""

from __future__ import annotations

import numpy as np
import pytest

import frames
from penstock import _core
from penstock.framing.framings import TFRECORD, Framing


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


def test_a_framing_without_checksums_pads_and_proves_nothing() -> None:
    padded = Framing("other", head_bytes=8, tail_bytes=0, align_bytes=4)
    assert [padded.frame_bytes(n) for n in range(6)] == [8, 12, 12, 12, 12, 16]
    sizes = padded.frame_bytes(np.arange(6, dtype=np.uint64))
    assert sizes.dtype == np.uint64
    assert sizes.tolist() == [8, 12, 12, 12, 12, 16]
    assert not padded.proves(_core.Buffer.from_bytes(b""), b"")
    assert list(padded.lengths(bytes(8))) == []
