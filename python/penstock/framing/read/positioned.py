"""The base class of readers of formats that are not framed, but hold one record after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from penstock.columns.numbers import as_arrow
from penstock.columns.selection import Selection
from penstock.contract.format import Chunk, FormatInfo, Options, Reader, SkippedRegion, Stretch
from penstock.errors import ChangedError, PenstockError
from penstock.framing.index.positions import kept_positions
from penstock.storage.base import Source

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20
"""A chunk ends with the record that fills it."""


class PositionedReader(Reader):
    """A reader of a file that holds one record after another, such as a length and a payload.

    A subclass sets `schema`, and defines `find` and `decode`. Everything else follows: chunks, random access that reads
    only the bytes of the records, an index (if `keeps_positions`), the exact bytes of a bad record. The positions are
    those in the index, if there is one, so `decode` must compare the length that a record claims with the bytes that it
    got.

    Args:
        info: the facts of the format.
        source: the file.
        options: the options that `Format.open` got.
    """

    def __init__(self, info: FormatInfo, source: Source, options: Options) -> None:
        self.source = source
        self._info = info
        self._skips = options.damage == "skip"
        if info.keeps_positions:
            found = kept_positions(info.name, source, options, self._found)
        else:
            found = self._found()
        self._positions, self._fault = found
        steps = (self._positions[:-1] - self._positions[0]) // _CHUNK_BYTES
        starts = np.flatnonzero(np.diff(steps, prepend=-1))
        self._edges = np.append(starts, len(steps))
        """The number of the first record of each chunk, and of records."""

    @abstractmethod
    def find(self, starts: list[int]) -> int:
        """Find the records, by reading through the file or a footer: append the start of each to `starts`, in order,
        and return the end of the last one. If bytes are damaged so that the next record cannot be found, raise
        FormatError with `byte`. The records before it are still read."""
        ...

    def _found(self) -> tuple[np.ndarray, PenstockError | None]:
        starts: list[int] = []
        fault = None
        try:
            end = self.find(starts)
        except PenstockError as error:
            error.at(file=self.source.path)
            if not starts or error.byte is None:
                raise  # nothing can be read
            end, fault = error.byte, error.at(record=len(starts))
        return np.array([*starts, end], np.int64), fault

    def frames(self, chunk: Chunk[None], records: Selection) -> Iterator[tuple[int, memoryview]]:
        """Read records of a chunk, and yield for each its number in the file and its bytes, in the requested order."""
        numbers = np.arange(chunk.num_records) if records is None else records
        numbers = numbers + chunk.first_record
        starts, ends = self._positions[numbers], self._positions[numbers + 1]
        lengths = ends - starts
        if records is None:
            data = self.source.read(chunk.start_byte, chunk.end_byte - chunk.start_byte)
            places = starts - chunk.start_byte
        else:
            data = self.source.gather(as_arrow(starts.astype("u8")), as_arrow(lengths.astype("u8")))
            places = np.cumsum(lengths) - lengths
        if len(data) != lengths.sum():
            raise ChangedError("the file was truncated while it was open", file=self.source.path)
        view = memoryview(data)
        for number, at, size in zip(
            numbers.tolist(), places.tolist(), lengths.tolist(), strict=True
        ):
            yield number, view[at : at + size]

    def parsed(
        self, chunk: Chunk[None], records: Selection, parse: Callable[[memoryview], T]
    ) -> list[T]:
        """What `parse` returns for the bytes of each record, in the requested order. Its errors get the file and the
        number of the record."""
        values: list[T] = []
        for record, data in self.frames(chunk, records):
            try:
                values.append(parse(data))
            except PenstockError as error:
                raise error.at(file=self.source.path, record=record) from None
        return values

    # -- what follows from the positions ---------------------------------------------------------

    @property
    def positions(self) -> np.ndarray:
        return self._positions

    def compares(self, chunk: Chunk[None] | None) -> bool:
        return self._info.has_checksums

    @property
    def num_records(self) -> int:
        self._check()
        return len(self._positions) - 1

    @property
    def uncounted(self) -> Sequence[SkippedRegion]:
        if self._fault is None:
            return ()
        start, end = int(self._positions[-1]), self.source.size
        return (SkippedRegion(self.source.path, start, end, None, self._fault.message),)

    def _check(self) -> None:
        if self._fault is not None and not self._skips:
            raise self._fault

    def _chunk(self, number: int) -> Chunk[None]:
        first, last = self._edges[number : number + 2].tolist()
        start, end = self._positions[[first, last]].tolist()
        return Chunk(first, last - first, start, end)

    def chunks(self) -> Iterator[Chunk[None]]:
        yield from map(self._chunk, range(len(self._edges) - 1))
        self._check()

    def spans(self) -> Iterator[Chunk[None]]:
        if not self._info.keeps_positions:
            yield from self.chunks()
        elif self.num_records:  # another machine would have to find the positions
            start, end = self._positions[[0, -1]].tolist()
            yield Chunk(0, self.num_records, start, end)

    def found_by(self, threads: int) -> Iterator[Stretch]:
        del threads
        yield from self.chunks()
        yield from self.uncounted

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[None], np.ndarray]]:
        chunks = np.searchsorted(self._edges, records, "right") - 1
        for run in np.split(np.arange(len(records)), np.flatnonzero(np.diff(chunks)) + 1):
            if len(run):
                chunk = self._chunk(int(chunks[run[0]]))
                yield chunk, records[run] - chunk.first_record

    def close(self) -> None:
        self.source.close()
