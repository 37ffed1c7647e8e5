"""The regions that readers have skipped. Kept outside the dataset: readers that referred to the dataset would form a
reference cycle with it, and their buffers would stay until Python's garbage collector runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.contract.format import SkippedRegion

Result = TypeVar("Result")


class Notes:
    """Skipped regions in the order they were met, each once. Safe to use from several threads."""

    def __init__(self) -> None:
        self._regions: dict[SkippedRegion, None] = {}
        self._records: set[int] = set()
        self._local = threading.local()

    @property
    def regions(self) -> list[SkippedRegion]:
        """The regions that have been skipped so far."""
        return list(self._regions)

    def add(self, region: SkippedRegion) -> None:
        """Add a region; inside `collecting` of the same thread, hold it back for the caller instead."""
        held: list[SkippedRegion] | None = getattr(self._local, "held", None)
        if held is None:
            self._regions[region] = None
        else:
            held.append(region)

    def add_record(self, number: int, region: SkippedRegion) -> None:
        """Add a record of the dataset that could not be used, once: the same fault may be described in different
        words each time that the record is read."""
        if number not in self._records:
            self._records.add(number)
            self.add(region)

    def collecting(self, call: Callable[[], Result]) -> tuple[Result, list[SkippedRegion]]:
        """Call something and return its result and the regions that it skipped, which are not added yet: several
        threads read ahead, but damage is reported in the order of the records."""
        held: list[SkippedRegion] = []
        outer, self._local.held = getattr(self._local, "held", None), held
        try:
            return call(), held
        finally:
            self._local.held = outer
