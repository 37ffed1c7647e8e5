"""A storage that counts the bytes, reads and seeks of its files."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.storage import Folder, LocalStorage, Sink, Source, SourceView, Storage

BLOCK_BYTES = 4096
"""The size of a disk block. A record of 100 bytes needs one block, or two if it crosses a block boundary."""


@dataclass(slots=True)
class Counts:
    """Totals of all reads."""

    num_bytes: int = 0
    reads: int = 0
    seeks: int = 0
    """Reads that did not begin where the previous read of the same file ended."""
    block_bytes: int = 0
    """Bytes of the touched blocks; a block shared by adjacent reads counts once."""


class Noted:
    """Counts reads."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._ends: dict[str, int] = {}
        self._lock = threading.Lock()

    def reset(self) -> None:
        self.counts, self._ends = Counts(), {}

    def note(self, path: str, starts: np.ndarray, lengths: np.ndarray) -> None:
        """Count reads of ranges of a file, one after another."""
        wanted = lengths > 0
        starts, ends = starts[wanted].astype(np.int64), (starts + lengths)[wanted].astype(np.int64)
        if not len(starts):
            return
        with self._lock:
            before = np.concatenate([[self._ends.get(path, -1)], ends[:-1]])
            self._ends[path] = int(ends[-1])
            counts = self.counts
            counts.num_bytes += int((ends - starts).sum())
            counts.reads += len(starts)
            is_adjacent = starts == before
            counts.seeks += int(np.count_nonzero(~is_adjacent))
            blocks = (ends - 1) // BLOCK_BYTES - starts // BLOCK_BYTES + 1
            shared = is_adjacent & (starts % BLOCK_BYTES > 0)
            counts.block_bytes += BLOCK_BYTES * int(blocks.sum() - np.count_nonzero(shared))


class CountingStorage(LocalStorage):
    """Local files whose reads are counted. Reads of indexes are not counted, because each index is read only once."""

    def __init__(self) -> None:
        super().__init__()
        self.noted = Noted()

    def source(self, path: str, *, mmap: bool = False) -> Any:
        found = super().source(path)
        if isinstance(found, Folder):
            return _CountedFolder(path, self.noted)
        return _CountedSource(found, self.noted)


class CountingStore(Storage):
    """Files of another storage whose reads are counted."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.reads_at_once = storage.reads_at_once
        self.noted = Noted()

    def source(self, path: str, *, mmap: bool = False) -> Source:
        return _CountedSource(self._storage.source(path, mmap=mmap), self.noted)

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        return self._storage.sink(path, overwrite=overwrite)

    def list(self, folder: str) -> list[str]:
        return self._storage.list(folder)

    def exists(self, path: str) -> bool:
        return self._storage.exists(path)


def counting(storage: Storage) -> CountingStorage | CountingStore:
    """Return a storage of the same files that counts what is read of them."""
    return CountingStorage() if storage.changes_in_place else CountingStore(storage)


class _CountedSource(SourceView):
    def __init__(self, source: Source, noted: Noted) -> None:
        super().__init__(source)
        self._noted = noted

    def read(self, start: int, length: int) -> Any:
        data = self._source.read(start, length)
        self._noted.note(self.path, np.array([start]), np.array([len(data)]))
        return data

    def gather(self, starts: pa.Array, lengths: pa.Array) -> Any:
        self._noted.note(self.path, np.asarray(starts), np.asarray(lengths))
        return self._source.gather(starts, lengths)


class _CountedFolder(Folder):
    """A folder of small files. Each read of a file counts as a seek."""

    def __init__(self, path: str, noted: Noted) -> None:
        super().__init__(path)
        self._noted = noted

    def _note(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            entry = self.entries[number]
            name = f"{self.path}/{entry.name}\0{self._noted.counts.reads}"  # unique, so that it counts as a seek
            self._noted.note(name, np.array([0]), np.array([entry.size]))

    def read_file(self, number: int) -> Any:
        self._note([number])
        return super().read_file(number)

    def read_files(self, numbers: Sequence[int], limits: Any) -> Any:
        self._note(numbers)
        return super().read_files(numbers, limits)
