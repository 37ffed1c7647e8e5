"""The part of a dataset that scans and takes use."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.contract.format import Options, SkippedRegion
from penstock.datasets.files import Files


class Opened:
    """The files of a dataset, the columns to read, and the regions skipped so far."""

    def __init__(self, files: Files, columns: Sequence[str] | None) -> None:
        self._files = files
        self._columns = columns
        self._regions: dict[SkippedRegion, None] = {}
        self._records: set[int] = set()

    def __len__(self) -> int:
        return int(self._files.firsts[-1])

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record, as a pyarrow.Schema."""
        whole = self._files.schema
        if self._columns is None:
            return whole
        return pa.schema(map(whole.field, self._columns), metadata=whole.metadata)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in the order in which they are read."""
        return self._files.paths

    @property
    def files(self) -> Files:
        return self._files

    @property
    def options(self) -> Options:
        """The options that were passed to `open`."""
        return self._files.options

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns that were passed to `open`; None for all."""
        return self._columns

    @property
    def damage(self) -> list[SkippedRegion]:
        """The regions skipped so far, without repeats, in the order in which they were found."""
        return list(self._regions)

    def add_skipped(self, region: SkippedRegion) -> None:
        self._regions[region] = None

    def add_skipped_record(self, number: int, region: SkippedRegion) -> None:
        """Add a record to the skipped regions, but only once. Its number identifies it, because the description of the
        same fault may differ from read to read."""
        if number not in self._records:
            self._records.add(number)
            self.add_skipped(region)
