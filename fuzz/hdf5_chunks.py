"""The target for compressed chunks of HDF5. zlib, and plain implementations of LZF and shuffle, must give the same
bytes."""

from __future__ import annotations

import random
import struct
import zlib

import h5py
import numpy as np

from penstock import _core

_FILTERS = ([], ["gzip"], ["lzf"], ["shuffle"], ["shuffle", "gzip"], ["shuffle", "lzf"])
_HEAD = struct.Struct("<BBHB")
"""The filters, the mask, the size of the chunk, and the size of a value."""


def unpacked(data: bytes, rng: random.Random) -> None:
    """Several chunks of arbitrary bytes in one call."""
    if len(data) < _HEAD.size:
        return
    which, mask, size, width = _HEAD.unpack_from(data)
    filters, width = _FILTERS[which % len(_FILTERS)], width % 17 or 1
    size = size // width * width
    body = data[_HEAD.size :]
    cut = rng.choice((len(body), rng.randint(0, len(body))))
    chunks = [(cut, mask), (len(body) - cut, mask)] if cut < len(body) else [(cut, mask)]
    found = _core.unpack_chunks(
        _core.Buffer.from_bytes(body), chunks, filters, size, width, rng.choice((1, 2))
    ).to_bytes()
    assert len(found) == size * len(chunks)
    parts = [body[:cut], body[cut:]][: len(chunks)]
    assert found == b"".join(_plain(part, filters, mask, width) for part in parts)


def _plain(chunk: bytes, filters: list[str], mask: int, width: int) -> bytes:
    for bit, name in reversed(list(enumerate(filters))):
        if mask >> bit & 1:
            continue
        if name == "gzip":
            chunk = zlib.decompressobj().decompress(chunk)
        elif name == "lzf":
            chunk = _lzf(chunk)
        else:
            chunk = np.frombuffer(chunk, np.uint8).reshape(width, -1).T.tobytes()
    return chunk


def _lzf(data: bytes) -> bytes:
    out, at = bytearray(), 0
    while at < len(data):
        control, at = data[at], at + 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length, at = length + data[at], at + 1
        back, at = ((control & 31) << 8 | data[at]) + 1, at + 1
        for _ in range(length + 2):
            out.append(out[-back])
    return bytes(out)


def chunks() -> list[bytes]:
    """Chunks that libhdf5 compressed with each filter."""
    values = np.arange(300, dtype="<i4") // 3
    found = []
    for which, filters in enumerate(_FILTERS):
        name = f"{which}.h5"
        how = {"shuffle": "shuffle" in filters, "chunks": values.shape}
        codec = next((f for f in filters if f != "shuffle"), None)
        with h5py.File(name, "w", driver="core", backing_store=False) as file:
            made = file.create_dataset("x", data=values, compression=codec, **how)
            mask, chunk = made.id.read_direct_chunk((0,))
        found.append(_HEAD.pack(which, mask, values.nbytes, values.itemsize) + chunk)
    return found
