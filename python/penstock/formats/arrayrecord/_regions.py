"""The regions of an ArrayRecord file: Riegeli's block and chunk headers, the chunk of one record, the footer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from penstock import _core
from penstock.columns.numbers import as_numpy
from penstock.contract.faults import error_from
from penstock.contract.format import Options, check_record
from penstock.contract.regions import (
    DIFFERS,
    MOST,
    OK,
    Region,
    constant,
    group,
    padding,
    several,
    text_of,
)
from penstock.errors import ChecksumError, FormatError, PenstockError, TruncatedError
from penstock.formats.arrayrecord._footer import BLOCK, SIGNATURE, read_extents, unpack
from penstock.payloads.example.regions import example_regions
from penstock.storage.base import Source

Decoded = TypeVar("Decoded")
_BLOCK_HEAD, _CHUNK_HEAD = 24, 40
_BLOCK_FIELDS = ("block header hash", 8), ("previous chunk", 8), ("next chunk", 8)
_CHUNK_FIELDS = (
    *(("header hash", 8), ("data size", 8), ("data hash", 8)),
    *(("chunk type", 1), ("number of records", 7), ("decoded data size", 8)),
)
_HASHES = ("header hash", "data hash")
_CHUNKS = {"r": "simple", "t": "transposed", "p": "padding", "s": "file signature"}
_CODECS = {0: "not compressed", ord("b"): "brotli", ord("z"): "zstd", ord("s"): "snappy"}


def file_regions(source: Source, record: int, options: Options) -> Iterator[Region]:
    """The regions of a file. If its footer is damaged, yield the chunks that are found by their headers, then raise the
    error."""
    signature = constant(source.read(0, len(SIGNATURE)).to_bytes(), 0, "file signature", SIGNATURE)
    parts = (*_numbers(SIGNATURE, 0, _BLOCK_FIELDS), *_numbers(SIGNATURE[24:], 24, _CHUNK_FIELDS))
    yield replace(signature, value=None, children=parts)
    chunks = _Chunks(source, options)
    try:
        extents = read_extents(source, options)
    except PenstockError:
        yield from chunks.by_heads(len(SIGNATURE))
        raise
    num_records = int(extents.firsts[-1])
    place = int(np.searchsorted(extents.firsts, record, "right")) - 1
    place = place if record < num_records else len(extents)
    edges = [
        *extents.starts.tolist(),
        int(extents.ends[-1]) if len(extents) else source.size - BLOCK,
    ]

    def others(first: int, last: int) -> Iterator[Region]:
        start, note = edges[first], f"{extents.firsts[last] - extents.firsts[first]} records"
        return several(start, edges[last] - start, first, last - first, "chunk", note)

    yield from others(0, place)
    if place < len(extents):
        inside = record - int(extents.firsts[place])
        yield chunks.region(edges[place], edges[place + 1], f"chunk {place}", record, inside)
        yield from others(place + 1, len(extents))
    end = source.size - BLOCK
    note = f"{len(extents)} chunks, {num_records} records"
    yield replace(chunks.region(edges[-1], end, "footer"), note=note)
    yield chunks.region(end, source.size, "postscript")
    check_record(record, num_records)


def _numbers(data: bytes, start: int, specs: Any) -> Iterator[Region]:
    """The regions of consecutive numbers."""
    at = 0
    for name, length in specs:
        value: Any = int.from_bytes(data[at : at + length], "little")
        if name.endswith("hash"):
            value = f"{value:#018x}"
        elif name == "chunk type":
            value = _CHUNKS.get(chr(value), f"unknown: {value}")
        yield Region(start + at, length, name, value)
        at += length


class _Chunks:
    def __init__(self, source: Source, options: Options) -> None:
        self._source = source
        self._options = options

    def region(self, start: int, end: int, name: str, record: int = -1, inside: int = 0) -> Region:
        """The chunk from `start` to `end`, padding included, with one of its records unless `record` is negative."""
        self._options.limits.check("member_bytes", end - start)
        data = self._source.read(start, end - start)
        parts = self._parts(data, start, end, record, inside)
        return group(name, start, end - start, parts)

    def by_heads(self, start: int) -> Iterator[Region]:
        """The chunks from `start` on, each found from the header before it, up to the first that is damaged."""
        for number in range(MOST):
            head = self._source.read(start, _CHUNK_HEAD + _BLOCK_HEAD)
            try:
                kind, size, count, _ = _core.riegeli_head(head, start)
            except _core.KernelError:
                return
            end = max(_place(start, _CHUNK_HEAD + size), start + count)
            if end > self._source.size:
                return
            note = f"{_CHUNKS.get(chr(kind), 'unknown')}, {count} records"
            yield Region(start, end - start, f"chunk {number}", note=note)
            start = end

    def _parts(
        self, data: _core.Buffer, start: int, end: int, record: int, inside: int
    ) -> Iterator[Region]:
        if start % BLOCK == 0:
            yield _block_header(data, start, start)
        head = _joined(data, start, _CHUNK_HEAD)
        if len(head) < _CHUNK_HEAD:
            raise TruncatedError("the header of a chunk is truncated", byte=start + len(data))
        states, decoded, frames = self._decoded(data, start, end)
        at = 0
        for field in _numbers(head, 0, _CHUNK_FIELDS):
            where = _place(start, at)
            length = _place(start, at + field.length - 1) + 1 - where
            state, note = states.get(field.name, ("", ""))
            yield replace(field, start=where, length=length, state=state, note=note)
            at += field.length
        size = int.from_bytes(head[8:16], "little")
        first = _place(start, at)
        stop = min(max(_place(start, at + size - 1) + 1, first) if size else first, end)
        blocks = range(max(-(-first // BLOCK), start // BLOCK + 1) * BLOCK, stop, BLOCK)[:MOST]
        headers = tuple(_block_header(data, start, block) for block in blocks)
        codec = _CODECS.get(_joined(data, start, at + 1)[at:][0] if size else 0, "")
        note = f"{codec}, decodes to {decoded} bytes" if chr(head[24]) == "r" else ""
        yield Region(first, stop - first, "data", None, note, headers)
        if record >= 0 and frames is not None:
            if inside >= len(frames):
                raise FormatError("the chunk has fewer records than the footer says", byte=start)
            yield _record(frames, record, inside)
        yield from padding(stop, end)

    def _decoded(
        self, data: _core.Buffer, start: int, end: int
    ) -> tuple[dict[str, tuple[str, str]], int, _core.Frames | None]:
        """The states of the two hashes, the size of the decoded records, and the records if both hashes are right."""
        states: dict[str, tuple[str, str]] = dict.fromkeys(_HASHES, ("", "not computed"))
        header, states["header hash"] = self._compared(lambda: _core.riegeli_head(data, start))
        kind, _, count, decoded = header or (0, 0, 0, 0)
        if kind != ord("r"):
            return states, decoded, None
        chunk = 0, end - start, start, count, decoded
        frames, states["data hash"] = self._compared(lambda: self._frames(data, chunk))
        return states, decoded, frames

    def _compared(self, decode: Callable[[], Decoded]) -> tuple[Decoded | None, tuple[str, str]]:
        """Return what `decode` returns (None if the hash is wrong), and the state and the note of the hash."""
        try:
            return decode(), (OK, "ok")
        except _core.KernelError as error:
            found = error_from(error.args[0], file=self._source.path, record=None)
            if not isinstance(found, ChecksumError):
                raise found from None
            computed = error.args[0].found
            note = "DIFFERS" if computed is None else f"DIFFERS: computed {computed:#018x}"
            return None, (DIFFERS, note)

    def _frames(self, data: _core.Buffer, chunk: tuple[int, ...]) -> _core.Frames:
        self._options.limits.check("member_bytes", chunk[-1])
        return unpack(data, [np.array([n], np.uint64) for n in chunk], self._options)


def _record(frames: _core.Frames, record: int, inside: int) -> Region:
    """One record, at its position in the decoded bytes of the chunk."""
    at = int(as_numpy(frames[:inside].lengths()).sum()) if inside else 0
    payload = frames.payload(inside)
    parts = example_regions(payload, at)
    found = Region(at, len(payload), f"record {record}", text_of(payload), "", parts)
    return found.moved("decoded values of the chunk")


def _block_header(data: _core.Buffer, start: int, at: int) -> Region:
    head = data.slice(at - start, _BLOCK_HEAD).to_bytes()
    if len(head) < _BLOCK_HEAD:
        raise TruncatedError("a block header is truncated", byte=at + len(head))
    return group("block header", at, _BLOCK_HEAD, _numbers(head, at, _BLOCK_FIELDS))


def _place(start: int, count: int) -> int:
    """The position in the file of byte `count` of a chunk that begins at `start`. The bytes of block headers, which
    interrupt chunks, are not counted."""
    at = start + (_BLOCK_HEAD if start % BLOCK == 0 else 0)
    # How many bytes of chunks a block has, and how many of them come before `at` in its block.
    room = BLOCK - _BLOCK_HEAD
    before = at % BLOCK - _BLOCK_HEAD
    blocks, rest = divmod(before + count, room)
    return at - at % BLOCK + blocks * BLOCK + _BLOCK_HEAD + rest


def _joined(data: _core.Buffer, start: int, count: int) -> bytes:
    """The first `count` bytes of a chunk, without block headers. It reads byte by byte, for small counts."""
    places = (_place(start, n) - start for n in range(count))
    return b"".join(data.slice(place, 1).to_bytes() for place in places)
