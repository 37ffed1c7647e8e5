"""Frames of TFRecord with correct checksums."""

from __future__ import annotations

import struct

from penstock import _core

FRAMING = 16
"""The bytes of a frame in addition to its payload."""


def masked(data: bytes) -> int:
    """The checksum that a frame stores for some bytes."""
    crc = _core.Buffer.from_bytes(data).crc32c()
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def head(length: int) -> bytes:
    """The head of a frame, whatever length it claims."""
    bare = struct.pack("<Q", length)
    return bare + struct.pack("<I", masked(bare))


def framed(payload: bytes) -> bytes:
    """A valid frame around a payload."""
    return head(len(payload)) + payload + struct.pack("<I", masked(payload))
