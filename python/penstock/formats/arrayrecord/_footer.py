"""The footer of an ArrayRecord file, which lists its chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.numbers import as_arrow, as_numpy
from penstock.contract.faults import error_from
from penstock.contract.format import Options
from penstock.errors import (
    ChecksumError,
    FormatError,
    PenstockError,
    TruncatedError,
    UnsupportedError,
)
from penstock.storage.base import Source

BLOCK = 1 << 16
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f0000000000000000400000000000000091bac23c9287e1a9"
    "0000000000000000e19f13c0e9b1c3727300000000000000"
) + bytes(8)
MAGIC = 0x71930E704FDAE05E
_POSTSCRIPT_RECORDS = 3
_VERSION = 1


class Extents:
    """Where the chunks of a file are, and how many records they have: int64 arrays."""

    def __init__(
        self, offsets: np.ndarray, sizes: np.ndarray, counts: np.ndarray, end: int
    ) -> None:
        self.starts = offsets
        self.ends = np.append(offsets[1:], end)
        self.sizes = sizes
        """The bytes of the records of each chunk."""
        self.firsts = np.concatenate([[0], np.cumsum(counts)])
        """The first record of each chunk, then the number of all records."""
        self.are_single = bool((counts == 1).all())
        """Whether each chunk has one record."""
        costs = np.maximum(self.ends - self.starts, sizes)
        self.costs = np.concatenate([[0], np.cumsum(costs)])
        """For each chunk, the sum of the costs of the chunks before it; then the sum of all costs. The cost of a chunk
        is its size in the file or in memory, whichever is larger."""

    def __len__(self) -> int:
        return len(self.starts)


def read_extents(source: Source, options: Options) -> Extents:
    """Read the chunks that the footer of a file lists. Raises the errors of ArrayRecordFormat.open."""
    head = source.read(0, len(SIGNATURE)).to_bytes()
    if head != SIGNATURE:
        kind = TruncatedError if SIGNATURE.startswith(head) else FormatError
        raise kind(
            "the file does not start like an ArrayRecord file", byte=0, found=head[:8].hex(" ")
        )
    footer, end = _footer_offset(source, options), source.size - BLOCK
    options.limits.check("footer_bytes", end - footer)
    records = _unlisted_chunk(source, footer, end, options)
    if records is None or not len(records):
        raise FormatError("the footer has no records", byte=footer)
    return _extents(records, footer, options)


def _footer_offset(source: Source, options: Options) -> int:
    """Return where the footer starts, from the postscript."""
    start = source.size - BLOCK
    if start < BLOCK or source.size % BLOCK:
        raise _no_postscript(source)
    try:
        records = _unlisted_chunk(source, start, source.size, options)
    except ChecksumError:
        raise
    except FormatError:  # the last block is the middle of a chunk: the file was truncated there
        raise _no_postscript(source) from None
    if records is None or len(records) != _POSTSCRIPT_RECORDS:
        raise _no_postscript(source)
    offsets, magics, _ = _numbers(records, start)
    if (magics != MAGIC).any() or (offsets != offsets[0]).any():
        raise _no_postscript(source)
    footer = int(offsets[0])
    if not len(SIGNATURE) <= footer < start:
        raise FormatError("the footer is not in the file", byte=start, found=footer)
    return footer


def _no_postscript(source: Source) -> PenstockError:
    if source.path.endswith(".riegeli"):
        return UnsupportedError(
            "this is a plain Riegeli file, which has no footer; penstock reads only ArrayRecord files",
            hint="copy its records to an ArrayRecord or TFRecord file with riegeli's own reader",
        )
    return TruncatedError(
        "there is no postscript in the last 64 KiB: the file was truncated, never finished, or is a "
        "plain Riegeli file",
        byte=source.size,
        found=f"{source.size} bytes",
    )


def _unlisted_chunk(source: Source, start: int, end: int, options: Options) -> _core.Frames | None:
    """Return the records of a chunk that the footer does not list, or None if it has no records."""
    data = source.read(start, end - start)
    try:
        kind, _, count, size = _core.riegeli_head(data, start)
        if kind != ord("r"):
            return None
        options.limits.check("footer_bytes", size)
        row = (0, end - start, start, count, size)
        return unpack(data, [np.array([number], np.uint64) for number in row], options)
    except _core.KernelError as error:
        raise error_from(error.args[0], file=source.path, record=None) from None


def unpack(data: _core.Buffer, columns: Sequence[np.ndarray], options: Options) -> _core.Frames:
    """Return the records of some chunks. `data` has the bytes of the chunks. `columns` are where they start in `data`,
    their lengths, where they start in the file, and the number and the bytes of their records."""
    starts, lengths, offsets, counts, sizes = (unsigned(column) for column in columns)
    return _core.riegeli_records(
        data,
        starts,
        lengths,
        offsets,
        counts,
        sizes,
        options.limits.record_bytes,
        options.limits.member_bytes,
        options.verifies,
    )


def unsigned(numbers: np.ndarray) -> pa.Array:
    return as_arrow(numbers.astype(np.uint64))


def _numbers(records: _core.Frames, byte: int) -> tuple[np.ndarray, ...]:
    """Return the fields 1, 2 and 3 of each record."""
    try:
        return tuple(as_numpy(column) for column in _core.message_numbers(records, [1, 2, 3]))
    except _core.KernelError:
        raise FormatError("the footer or postscript is not a message", byte=byte) from None


def _extents(records: _core.Frames, footer: int, options: Options) -> Extents:
    head = _core.Buffer.from_bytes(records.payload(0)).to_bytes()
    version, num_chunks, num_records = _footer_head(head, footer)
    if version != _VERSION:
        raise UnsupportedError("the version of the footer is unknown", found=version)
    offsets, sizes, counts = (n.astype(np.int64) for n in _numbers(records[1:], footer))
    if len(offsets) != num_chunks or int(counts.sum()) != num_records:
        raise FormatError(
            "the footer's counts of chunks and records differ from its list",
            byte=footer,
            expected=f"{num_chunks} chunks, {num_records} records",
            found=f"{len(offsets)} chunks, {int(counts.sum())} records",
        )
    # A chunk has at least one byte per record, which bounds the sums.
    limit = np.diff(offsets, append=footer)
    outside = (offsets < len(SIGNATURE)) | (offsets >= footer)
    if (outside | (limit <= 0) | (counts < 0) | (counts > limit)).any():
        raise FormatError("the footer lists chunks at impossible positions", byte=footer)
    if (sizes < 0).any():
        raise FormatError("the footer lists chunks of impossible sizes", byte=footer)
    if len(sizes):
        options.limits.check("member_bytes", int(sizes.max()))
    return Extents(offsets, sizes, counts, footer)


def _footer_head(record: bytes, byte: int) -> tuple[int, int, int]:
    """Return version, number of chunks and number of records from the message in field 1 of the first record."""
    found = {1: 0, 2: 0, 3: 0}
    try:
        if record[:1] != b"\x0a":
            raise IndexError
        length, at = _varint(record, 1)
        end = at + length
        if end > len(record):
            raise IndexError
        while at < end:
            tag, at = _varint(record, at)
            value, at = _varint(record, at)
            if tag & 7 == 2:
                at += value
            elif tag & 7:
                raise IndexError
            found[tag >> 3] = value
    except IndexError:
        raise FormatError("the start of the footer is invalid", byte=byte) from None
    return found[1], found[2], found[3]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a base-128 varint and where it ends. Raise IndexError if it does not end."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
