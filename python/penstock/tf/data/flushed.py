"""Detects that a compressed file lacks its last block because its writer was flushed and is still open.

TensorFlow reads such a file up to there without an error. It also treats any other truncation between two records as
the end. In penstock that is damage, because records after it would be lost silently.
"""

from __future__ import annotations

import zlib
from typing import Any

from penstock.tf.remote import is_remote, opened

_PIECE_BYTES = 1 << 20
_WINDOW_BITS = {"gzip": 31, "zlib": 15}
_MARK = b"penstock"
_LAST_BLOCK = b"\0\0\xff\xff" + b"\x01" + len(_MARK).to_bytes(2, "little") + b"\xf7\xff" + _MARK
"""Bytes that complete a flushed file: the rest of an empty stored block, and a final stored block with the mark."""


def is_flushed(path: str, container: str) -> bool:
    """Whether the deflate data of a file ends as after a flush: after a block, but without the last bits of an empty
    block. Blocks appended later then decode to exactly their content."""
    stream = zlib.decompressobj(_WINDOW_BITS[container])
    with opened(path) if is_remote(path) else open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            try:
                stream = _advanced(stream, piece, container)
            except zlib.error:
                return False
    # The bits that a flush holds back and the header of the stored block are in one or two bytes.
    return any(_gives_the_mark(stream.copy(), bytes(zeros) + _LAST_BLOCK) for zeros in (1, 2))


def _advanced(stream: Any, piece: bytes, container: str) -> Any:
    while piece:
        stream.decompress(piece, _PIECE_BYTES)
        piece = stream.unconsumed_tail
        if stream.eof:
            piece = stream.unused_data
            stream = zlib.decompressobj(_WINDOW_BITS[container])
    return stream


def _gives_the_mark(stream: Any, data: bytes) -> bool:
    try:
        return stream.decompress(data) == _MARK
    except zlib.error:
        return False
