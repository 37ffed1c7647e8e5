"""The positions of records in a large sidecar of an object store. Only those are read that are asked for.

`Numbers` stands for a NumPy array: numbers at given places are read in the blocks that have them, and each block is
verified. For any other use the whole array is read once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np

from penstock.columns.numbers import in_bytes
from penstock.engine.locks import Lock
from penstock.errors import StaleIndexError
from penstock.framing.index._sections import BLOCK_BYTES, Sections

MOST_WHOLE_BYTES = 1 << 20
"""Smaller sidecars are read whole."""
HEAD_BYTES = 128 << 10
"""The first bytes of a larger sidecar, which have its small sections."""


class Blocks:
    """The blocks of a sidecar that were read so far. `fellows` are the arrays whose numbers are needed together."""

    def __init__(self, sections: Sections) -> None:
        self.sections = sections
        self.fellows: list[Numbers] = []
        self._found: dict[int, np.ndarray] = {}
        self._lock = Lock()

    def read(self, places: np.ndarray) -> dict[int, np.ndarray]:
        """The blocks with the numbers at these places, of all fellows."""
        wanted = np.unique(np.concatenate([one.blocks_of(places) for one in self.fellows]))
        with self._lock:
            missing = [block for block in wanted.tolist() if block not in self._found]
            with self.explained():
                for block, data in self.sections.read_blocks(missing).items():
                    self._found[block] = in_bytes(data)
            return self._found

    @contextmanager
    def explained(self) -> Generator[None]:
        """Raise StaleIndexError for a damaged sidecar."""
        try:
            yield
        except ValueError as error:
            message = f"the index is damaged ({error}); make it again with penstock index --force"
            raise StaleIndexError(message, file=self.sections.path) from None


class Numbers:
    """An array in a section of a sidecar."""

    def __init__(self, blocks: Blocks, name: str, kind: str, count: int, first: int = 0) -> None:
        start, length = blocks.sections.place(name)
        self._type = np.dtype(kind)
        if length != (first + count) * self._type.itemsize:
            raise ValueError(f"its {name} are missing, or their number does not match its header")
        self._blocks, self._name, self._count, self._first = blocks, name, count, first
        self._start = start
        self._all: np.ndarray | None = None

    def after_first(self) -> Numbers:
        """All numbers but the first."""
        kind, first = self._type.str, self._first + 1
        return Numbers(self._blocks, self._name, kind, self._count - 1, first)

    def blocks_of(self, places: np.ndarray) -> np.ndarray:
        """The blocks with the numbers at these places."""
        return self._at(np.minimum(places, self._count - 1)) // BLOCK_BYTES

    def _at(self, places: np.ndarray) -> np.ndarray:
        """Where these numbers are among all sections."""
        return self._start + (places + self._first) * self._type.itemsize

    def __len__(self) -> int:
        return self._count

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._all is None:
            with self._blocks.explained():
                data = self._blocks.sections.read(self._name)
            assert data is not None, "the section is there"
            self._all = in_bytes(data, self._type)[self._first :]
        return self._all if dtype is None else self._all.astype(dtype)

    def __getitem__(self, places: Any) -> Any:
        is_one = isinstance(places, (int, np.integer))
        is_list = isinstance(places, np.ndarray) and places.dtype.kind == "i"
        if self._all is not None or not (is_one or is_list):
            return np.asarray(self)[places]
        asked = np.atleast_1d(np.asarray(places, np.int64))
        if (asked < -self._count).any() or (asked >= self._count).any():
            raise IndexError(f"a place is not among {self._count}")
        asked = np.where(asked < 0, asked + self._count, asked)
        found = self._taken(asked)
        return found[0] if is_one else found

    def _taken(self, places: np.ndarray) -> np.ndarray:
        held = self._blocks.read(places) if len(places) else {}
        at = self._at(places)
        numbers = at // BLOCK_BYTES
        found = np.empty(len(places), self._type)
        for block in np.unique(numbers).tolist():
            mine = numbers == block
            inside = (at[mine] - block * BLOCK_BYTES) // self._type.itemsize
            found[mine] = held[block].view(self._type)[inside]
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)


def positions(sections: Sections) -> tuple[Any, Any]:
    """The starts and the checksums of all records."""
    blocks = Blocks(sections)
    count = sections.facts.num_records
    found = Numbers(blocks, "starts", "<u8", count + 1), Numbers(blocks, "checksums", "<u4", count)
    blocks.fellows.extend(found)
    return found
