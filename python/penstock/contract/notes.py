"""What reading has passed over. Apart from the dataset, whose readers write here: they would else
hold the dataset that holds them, and their buffers stay until Python's collector comes by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from penstock.contract.format import SkippedRegion

Result = TypeVar("Result")


class Notes:
    """Regions in the order they were met, each once. Used by several threads at once."""

    def __init__(self) -> None:
        self._regions: dict[SkippedRegion, None] = {}
        self._records: set[int] = set()
        self._local = threading.local()

    @property
    def regions(self) -> list[SkippedRegion]:
        """What has been passed over so far."""
        return list(self._regions)

    def add(self, region: SkippedRegion) -> None:
        """Note a region; for later, within `collecting` of the same thread."""
        held: list[SkippedRegion] | None = getattr(self._local, "held", None)
        if held is None:
            self._regions[region] = None
        else:
            held.append(region)

    def add_record(self, number: int, region: SkippedRegion) -> None:
        """Note a record of the dataset that could not be used, once: what is wrong with it may be told in
        other words each time that it is met."""
        if number not in self._records:
            self._records.add(number)
            self.add(region)

    def collecting(self, call: Callable[[], Result]) -> tuple[Result, list[SkippedRegion]]:
        """Call something, and give with its result what it passed over, which is not yet noted:
        several threads read ahead, and damage is told in the order of the records."""
        held: list[SkippedRegion] = []
        outer, self._local.held = getattr(self._local, "held", None), held
        try:
            return call(), held
        finally:
            self._local.held = outer
