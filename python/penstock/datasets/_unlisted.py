"""What is known of the shards of a dataset without opening them: nothing, unless a manifest lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from penstock.contract.format import Reader


class Every(set[int]):
    """A set with all numbers."""

    def __contains__(self, number: object) -> bool:
        return True


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

    @property
    def known_fingerprint(self) -> str:
        """`Dataset.fingerprint` of all records, if a manifest has it; else empty."""
        return ""
