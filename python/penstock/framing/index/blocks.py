"""Checksums for files that have none: an index may store the CRC-32C of each MiB.

`verify` compares all of them. With `ps.open(checksums="index")`, a `CheckedSource` compares all bytes that the reader
gets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np

from penstock import _core
from penstock.engine.locks import Lock
from penstock.errors import (
    ChangedError,
    ChecksumError,
    StaleIndexError,
    UnsupportedError,
    command,
)
from penstock.framing.index import sidecar
from penstock.framing.index.sidecar import Index
from penstock.storage.base import Source, Storage
from penstock.storage.local import LocalSource, LocalStorage
from penstock.storage.source_views import FrontPart, SourceView

BLOCK_BYTES = 1 << 20
_AT_ONCE = 8
"""Blocks that one call reads."""
_HELD_BLOCKS = 32
"""Blocks that are cached for the next small reads."""


def checksums_of(source: Source, start: int = 0) -> np.ndarray:
    """The CRC-32C of each MiB of a file from offset `start`, uint32."""
    found = [crc for _, crcs in _pieces(source, start, source.size) for crc in crcs]
    return np.array(found, "<u4")


def extended(source: Source, index: Index) -> np.ndarray | None:
    """The checksums of a file to which records were appended after its index was made. The old part's checksums are
    kept, so that damage there can still be found. None if the old part's last block is damaged."""
    whole, rest = divmod(index.data_bytes, BLOCK_BYTES)
    if index.blocks is None:
        return None
    start = whole * BLOCK_BYTES
    if rest and source.read(start, rest).crc32c() != index.blocks[whole]:
        return None
    return np.concatenate([index.blocks[:whole], checksums_of(source, start)])


def differing(
    source: Source, blocks: np.ndarray, start: int, end: int
) -> Iterator[tuple[int, int]]:
    """The changed ranges (start, end) of a file between two block boundaries."""
    begin: int | None = None
    for at, crcs in _pieces(source, start, end):
        for number, crc in enumerate(crcs, at // BLOCK_BYTES):
            if crc == blocks[number]:
                if begin is not None:
                    yield begin, number * BLOCK_BYTES
                begin = None
            elif begin is None:
                begin = number * BLOCK_BYTES
    if begin is not None:
        yield begin, end


def _pieces(source: Source, start: int, end: int) -> Iterator[tuple[int, list[int]]]:
    for at in range(start, end, _AT_ONCE * BLOCK_BYTES):
        length = min(_AT_ONCE * BLOCK_BYTES, end - at)
        data = source.read(at, length)
        if len(data) < length:
            raise ChangedError("the file was truncated while it was open", file=source.path)
        yield at, [data.slice(n, BLOCK_BYTES).crc32c() for n in range(0, length, BLOCK_BYTES)]


class CheckedSource(SourceView):
    """A file or object that compares every read with the checksums of an index."""

    def __init__(self, source: Source, blocks: np.ndarray) -> None:
        super().__init__(source)
        self.announces = False
        if len(blocks) != -(-self.size // BLOCK_BYTES):
            raise StaleIndexError(
                "the checksums in the index are for a file of a different size",
                file=self.path,
                hint=command("penstock", "index", "--checksums", "--force", self.path),
            )
        self._blocks = blocks
        self._lock = Lock()
        self._held: OrderedDict[int, _core.Buffer] = OrderedDict()

    def read(self, start: int, length: int) -> _core.Buffer:
        """Like `Source.read`. Raises ChecksumError if a block has changed."""
        end = min(start + length, self.size)
        if start >= end:
            return _core.Buffer.from_bytes(b"")
        first, last = start // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        data = self._block(first) if first == last else self._verified(first, last + 1)
        return data.slice(start - first * BLOCK_BYTES, end - start)

    def want(self, starts: Sequence[int], lengths: Sequence[int]) -> Sequence[object] | None:
        return ()  # it reads whole blocks

    def _block(self, number: int) -> _core.Buffer:
        with self._lock:
            held = self._held.get(number)
            if held is not None:
                self._held.move_to_end(number)
                return held
        found = self._verified(number, number + 1)
        with self._lock:
            self._held[number] = found
            if len(self._held) > _HELD_BLOCKS:
                self._held.popitem(last=False)
        return found

    def _verified(self, first: int, last: int) -> _core.Buffer:
        start, end = first * BLOCK_BYTES, min(last * BLOCK_BYTES, self.size)
        data = self._source.read(start, end - start)
        for number in range(first, last):
            found = data.slice((number - first) * BLOCK_BYTES, BLOCK_BYTES).crc32c()
            if len(data) < end - start or found != self._blocks[number]:
                # If the file was rewritten, that explains the mismatch, and this call raises the
                # error.
                self._source.check_read(may_grow=False)
                self._raise(number, found)
        return data

    def _raise(self, number: int, found: int) -> None:
        start = number * BLOCK_BYTES
        end = min(start + BLOCK_BYTES, self.size)
        raise ChecksumError(
            f"bytes {start} to {end} differ from those that were indexed",
            file=self.path,
            byte=start,
            expected=f"0x{self._blocks[number]:08x} (in the index)",
            found=f"0x{found:08x}",
            hint=command("penstock", "verify", self.path),
        )

    def check_read(self, *, may_grow: bool) -> None:
        """Do nothing, because all reads were compared with the index."""


def kept(path: str, where: str, storage: Storage) -> tuple[str, Index] | None:
    """The path and index of a file, if that index stores checksums of the file."""
    for folder in sidecar.folders(where):
        with suppress(OSError, StaleIndexError):
            place = sidecar.path_for(path, folder)
            if sidecar.has_blocks(place, storage):
                return place, sidecar.load(place, storage)
    return None


def checked(source: Source, where: str) -> CheckedSource:
    """A file whose reads are compared with the checksums of its index.

    Raises:
        StaleIndexError: there are no checksums, or they are for a file of a different size.
        UnsupportedError: it is a folder, or in a storage that keeps no index.
    """
    storage = source.storage
    if isinstance(source, (LocalSource, FrontPart)):
        storage = LocalStorage()
    if storage is None:
        message = 'checksums="index" supports only single files and objects'
        raise UnsupportedError(message, file=source.path)
    found = kept(source.path, where, storage)
    if found is None or found[1].blocks is None:
        raise StaleIndexError(
            "there is no index with checksums of this file",
            file=source.path,
            hint=command("penstock", "index", "--checksums", source.path),
        )
    return CheckedSource(source, found[1].blocks)
