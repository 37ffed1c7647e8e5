"""The part of an open dataset that scans and takes use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from penstock.contract.format import Options, SkippedRegion
from penstock.datasets._notes import Notes
from penstock.datasets.files import Files

Result = TypeVar("Result")


class Opened:
    """The files of a dataset, the columns to read from them, and the regions that were skipped."""

    def __init__(self, files: Files, notes: Notes, columns: Sequence[str] | None) -> None:
        self._files = files
        self._notes = notes
        self._columns = columns

    def __len__(self) -> int:
        return int(self._files.firsts[-1])

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record, as pyarrow.Schema."""
        whole = self._files.schema
        if self._columns is None:
            return whole
        return pa.schema(map(whole.field, self._columns), metadata=whole.metadata)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in the order they are read."""
        return self._files.paths

    @property
    def files(self) -> Files:
        """The files one by one, and their readers."""
        return self._files

    @property
    def options(self) -> Options:
        """The options that were passed to `open`."""
        return self._files.options

    @property
    def columns(self) -> Sequence[str] | None:
        """The columns that were passed to `open`; None for all."""
        return self._columns

    def note_record(self, number: int, region: SkippedRegion) -> None:
        """See Notes.add_record."""
        self._notes.add_record(number, region)

    def noting(self, call: Callable[[], Result]) -> tuple[Result, list[SkippedRegion]]:
        """See Notes.collecting."""
        return self._notes.collecting(call)
