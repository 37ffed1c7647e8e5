"""What is known of the shards of a dataset without opening them: nothing, unless a manifest lists them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from penstock.contract.format import Reader


class Every(set[int]):
    """A set with all numbers."""

    def __contains__(self, number: object) -> bool:
        return True


class Unlisted(ABC):
    """Facts of shards that are found by opening them."""

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

    @property
    def known_fingerprint(self) -> str:
        """`Dataset.fingerprint` of all records, if a manifest has it; else empty."""
        return ""
