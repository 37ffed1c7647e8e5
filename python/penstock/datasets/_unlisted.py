"""What is known of the shards of a dataset without opening them: nothing, unless a manifest lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from penstock.contract.format import Chunk, Reader
from penstock.manifests.manifest import Listed
from penstock.storage.base import Source


class Every(set[int]):
    """A set with all numbers."""

    def __contains__(self, number: object) -> bool:
        return True


class Cut(NamedTuple):
    """A part of a shard: its records, with their bytes (0 to 0 if unknown), and about how many bytes these are."""

    part: Chunk[None]
    num_bytes: int


class Divided(NamedTuple):
    """The size of a file, its records (None if they are not counted) and its parts."""

    num_bytes: int
    num_records: int | None
    cuts: Sequence[Cut] = ()


class Unlisted(ABC):
    """Facts of shards that are found by opening them."""

    paths: Sequence[str]

    @abstractmethod
    def reader(self, shard: int) -> Reader: ...

    @property
    @abstractmethod
    def firsts(self) -> np.ndarray: ...

    @property
    def num_records(self) -> int:
        """The number of all records."""
        return int(self.firsts[-1])

    def num_records_of(self, shard: int) -> int:
        """The number of records of a file."""
        return self.reader(shard).num_records

    def check_count(self, shard: int) -> None:
        """Raise StaleIndexError if an open file has another number of records than a manifest lists."""

    def check_scanned(self, shard: int, num_records: int) -> None:
        """Raise StaleIndexError if a scan of a file found another number of records than a manifest lists."""

    @property
    def chunk_lengths(self) -> Sequence[int]:
        """The number of records of each chunk, in file order."""
        every = range(len(self.paths))
        return [chunk.num_records for shard in every for chunk in self.reader(shard).chunks()]

    @abstractmethod
    def num_bytes(self, shard: int) -> int: ...

    @abstractmethod
    def source(self, shard: int) -> Source: ...

    def states_of(self, shards: range, *, are_counted: bool) -> list[Listed]:
        """The names and states of consecutive files, and the records of each if they `are_counted`."""
        return [
            Listed(
                self.paths[shard],
                self.source(shard).file_state(),
                self.num_records_of(shard) if are_counted else None,
            )
            for shard in shards
        ]

    def divided(self, target_bytes: int, *, are_counted: bool) -> Iterator[Divided]:
        """For each file: what a plan needs to know. If records `are_counted`, with the parts up to `target_bytes` that can
        be read alone."""
        counts = np.diff(self.firsts).tolist() if are_counted else None
        for shard in range(len(self.paths)):
            size = self.num_bytes(shard)
            if counts is None:
                yield Divided(size, None)
            elif size <= target_bytes:
                yield Divided(size, counts[shard])
            else:
                spans = list(self.reader(shard).spans())
                yield Divided(size, counts[shard], joined(spans, size, target_bytes))

    @property
    def known_fingerprint(self) -> str:
        """`Dataset.fingerprint` of all records, if a manifest has it; else empty."""
        return ""


def joined(spans: list[Chunk[Any]], size: int, target_bytes: int) -> list[Cut]:
    """Join consecutive spans of a file of `size` bytes, up to `target_bytes`."""
    edges = [edge for span in spans for edge in (span.start_byte, span.end_byte)]
    has_bytes = edges == sorted(edges) and all(0 < edge <= size for edge in edges[1:])
    total = max(sum(span.num_records for span in spans), 1)
    found: list[Cut] = []
    for span in spans:
        start, end = (span.start_byte, span.end_byte) if has_bytes else (0, 0)
        num_bytes = end - start if has_bytes else size * span.num_records // total
        if found and found[-1].num_bytes + num_bytes <= target_bytes:
            before, held = found[-1]
            count = before.num_records + span.num_records
            found[-1] = Cut(replace(before, num_records=count, end_byte=end), held + num_bytes)
        else:
            part: Chunk[None] = Chunk(span.first_record, span.num_records, start, end)
            found.append(Cut(part, num_bytes))
    return found
