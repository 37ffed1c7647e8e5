"""The superblock of an HDF5 file, and regions whose positions libhdf5 reports: object headers, values and chunks.

The other structures of a file (B-trees, heaps, links) are in the bytes between these regions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from penstock.contract.regions import (
    MOST,
    Region,
    checksum,
    constant,
    fields,
    group,
    named,
    read,
)
from penstock.errors import FormatError, TruncatedError
from penstock.formats.hdf5._file import (
    SIGNATURE,
    Found,
    check_chunks,
    datasets,
    h5py_or_error,
    open_file,
    translated,
)
from penstock.formats.numpy.regions import row_regions
from penstock.limits import Limits
from penstock.storage.base import Source

_WIDTHS = {2: "H", 4: "I", 8: "Q"}
_OLD = named(
    "free-space version B, root group version B, reserved B, shared header version B,"
    "size of offsets B, size of lengths B, reserved B, group leaf node k H, group internal node k H,"
    "flags I"
)
_NEW = named("size of offsets B, size of lengths B, flags B")
_OLD_PLACES = ("base address", "free-space address", "end of file address", "driver address")
_NEW_PLACES = ("base address", "extension address", "end of file address", "root group address")
_HEADER_1 = named("version B, reserved B, number of messages H, reference count I, header size I")
_MOST_CHUNKS = 1 << 16
_MOST_HASHED = 1 << 20
_WORD = 0xFFFFFFFF
_MIX = (0, 2, 4), (1, 0, 6), (2, 1, 8), (0, 2, 16), (1, 0, 19), (2, 1, 4)
_FINAL = (2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)


def file_regions(source: Source, record: int, limits: Limits) -> Iterator[Region]:
    """The regions of a file."""
    start = _signature_at(source)
    if start:
        yield Region(0, start, "user block")
    block = tuple(_superblock(source, start))
    end = block[-1].end
    yield group("superblock", start, end - start, block)
    with closing(open_file(source)) as file, translated(source.path):
        tables, single = datasets(file, None, limits, source.size)
        found: list[Region] = []
        for one in (*tables, *single)[:MOST]:
            found += _dataset(source, one, start, record)
    at = end
    for region in sorted(found, key=lambda region: region.start):
        # A dataset with two names occurs twice here.
        if region.start >= at:
            yield region
            at = region.end


def _signature_at(source: Source) -> int:
    """The position of the superblock: 0, or a power of two of at least 512."""
    at = 0
    while at < source.size:
        if source.read(at, 8).to_bytes() == SIGNATURE:
            return at
        at = max(2 * at, 512)
    return 0


def _superblock(source: Source, start: int) -> Iterator[Region]:
    data = source.read(start, 512).to_bytes()
    yield constant(data, start, "signature", SIGNATURE)
    (version,) = fields(data[8:], start + 8, ("version", "B"))
    yield version
    is_old = version.value < 2
    more = named("indexed storage k H, reserved H") if version.value == 1 else ()
    head = list(fields(data[9:], start + 9, *((*_OLD, *more) if is_old else _NEW)))
    yield from head
    width = next(field.value for field in head if field.name == "size of offsets")
    if version.value > 3 or width not in _WIDTHS:
        raise FormatError("a superblock of an unknown version", byte=start + 8, found=version.value)
    kind = _WIDTHS[width]
    at = head[-1].end
    names = [(name, kind) for name in (_OLD_PLACES if is_old else _NEW_PLACES)]
    if is_old:
        root = ("link name offset", kind), ("object header address", kind)
        names += [*root, ("cache type", "I"), ("reserved", "I"), ("scratch", "16s")]
    yield from fields(data[at - start :], at, *names)
    if not is_old:
        end = at + width * len(names)
        (stored,) = fields(data[end - start :], end, ("checksum", "I"))
        yield checksum(end, 4, "checksum", int(stored.value), _lookup3(data[: end - start]))


def _dataset(source: Source, found: Found, base: int, record: int) -> Iterator[Region]:
    """The header of a dataset, and its values."""
    h5py = h5py_or_error()
    address = int(h5py.h5o.get_info(found.id).addr) + base
    facts = f"{found.dtype}, shape {found.shape}"
    packed = ", ".join(found.filters)
    yield _object_header(source, address, found.name, f"{facts}, {packed}" if packed else facts)
    if found.user_block:
        return
    if found.chunk is not None:
        yield from _chunks(found, record)
        return
    start, size = found.id.get_offset(), found.id.get_storage_size()
    if start is None or not size:
        return
    if start + size > source.size:
        raise TruncatedError("the values end beyond the end of the file", byte=source.size)
    row_bytes = math.prod(found.shape[1:]) * found.dtype.itemsize
    children: Iterator[Region] = iter(())
    if found.shape and row_bytes * found.shape[0] == size:
        children = row_regions(
            lambda at, length: source.read(at, length).to_bytes(),
            found.dtype, start, row_bytes, found.shape[0], record,
        )  # fmt: skip
    yield group(f"values of {found.name}", start, size, children)


def _object_header(source: Source, start: int, name: str, facts: str) -> Region:
    """The first block of an object header, of version 1 or 2."""
    head = read(source, start, 16, "an object header")
    if head[:4] != b"OHDR":
        length = 16 + int.from_bytes(head[8:12], "little")
        parts = list(fields(head, start, *_HEADER_1))
    else:
        flags = head[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        size = read(source, start + at, width, "an object header")
        length = at + width + int.from_bytes(size, "little") + 4
        parts = list(fields(head, start, ("signature", "4s"), ("version", "B"), ("flags", "B")))
        parts.append(Region(start + at, width, "size of chunk 0", int.from_bytes(size, "little")))
        end = length - 4
        stored = int.from_bytes(read(source, start + end, 4, "an object header"), "little")
        known = read(source, start, end, "an object header") if end <= _MOST_HASHED else None
        computed = None if known is None else _lookup3(known)
        parts.append(checksum(start + end, 4, "checksum", stored, computed))
    length = min(length, source.size - start)
    return group(f"object header of {name}", start, length, parts, note=facts)


def _chunks(found: Found, record: int) -> Iterator[Region]:
    """The chunks of a dataset. A chunk with the record is one region; other adjacent chunks are one region together."""
    check_chunks(found)
    written: list[Any] = []

    def note(info: Any) -> int | None:
        written.append(
            (int(info.byte_offset), int(info.size), tuple(info.chunk_offset), info.filter_mask)
        )
        return 1 if len(written) >= _MOST_CHUNKS else None

    if found.id.get_storage_size():
        found.id.chunk_iter(note)
    height = found.chunk[0] if found.chunk else 1
    waiting: list[Any] = []
    for one in sorted(written):
        place, size, corner, mask = one
        is_wanted = corner[0] <= record < corner[0] + height
        if waiting and (is_wanted or waiting[-1][0] + waiting[-1][1] != place):
            yield _run(found, waiting)
            waiting = []
        if is_wanted:
            left_out = f", filters left out: {mask:#x}" if mask else ""
            rest = f"holds record {record}{left_out}"
            yield Region(place, size, f"chunk of {found.name}", f"at {list(corner)}", rest)
        else:
            waiting.append(one)
    if waiting:
        yield _run(found, waiting)


def _run(found: Found, chunks: list[Any]) -> Region:
    start, end = chunks[0][0], chunks[-1][0] + chunks[-1][1]
    word = "1 chunk" if len(chunks) == 1 else f"{len(chunks)} chunks"
    return Region(start, end - start, f"{word} of {found.name}")


def _lookup3(data: bytes) -> int:
    """The checksum of HDF5's metadata: Bob Jenkins' lookup3 (hashlittle with the initial value 0)."""
    state = [0xDEADBEEF + len(data) & _WORD] * 3
    words = struct.unpack(f"<{-(-len(data) // 12) * 3}I", data + bytes(-len(data) % 12))
    for at in range(0, len(words), 3):
        state = [
            number + word & _WORD for number, word in zip(state, words[at : at + 3], strict=True)
        ]
        if at + 3 == len(words):
            for x, y, bits in _FINAL:
                state[x] = (state[x] ^ state[y]) - _rotated(state[y], bits) & _WORD
            break
        for x, y, bits in _MIX:
            state[x] = (state[x] - state[y] & _WORD) ^ _rotated(state[y], bits)
            state[y] = state[y] + state[3 - x - y] & _WORD
    return state[2]


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _WORD
