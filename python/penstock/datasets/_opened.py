"""The part of a dataset that scans and takes use."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.contract.format import Options, SkippedRegion
from penstock.datasets._other_words import OtherWords
from penstock.datasets.files import Files
from penstock.errors import SchemaError

_OF_ONE_RECORD = re.compile(r"record \d+: ")


class Skipped:
    """The regions that a dataset skipped. They are added to `origin`, too: the regions of the dataset from which this
    one was made, so that a user who holds only that one sees what a verb skipped."""

    def __init__(self, origin: Skipped | None = None) -> None:
        self._regions: dict[tuple[Any, ...], SkippedRegion] = {}
        self.records: set[int] = set()
        self._origin = origin

    @property
    def regions(self) -> list[SkippedRegion]:
        return list(self._regions.values())

    def add(self, region: SkippedRegion) -> None:
        self._regions.setdefault(_identity(region), region)
        if self._origin is not None:
            self._origin.add(region)


def _identity(region: SkippedRegion) -> tuple[Any, ...]:
    """What distinguishes a region from others: its bytes, since a scan and an index describe the same fault in different
    words. But several records may share these bytes; then the reason begins with the number of one of them."""
    place = region.file, region.start_byte, region.end_byte
    if region.end_byte <= region.start_byte:
        return *place, region.num_records, region.reason
    return *place, region.reason if _OF_ONE_RECORD.match(region.reason) else ""


class Opened(OtherWords):
    """The files of a dataset, the columns to read, and the regions skipped so far."""

    def __init__(
        self, files: Files, columns: Sequence[str] | None, skipped: Skipped | None = None
    ) -> None:
        self._files = files
        self._columns = columns
        self._regions = Skipped() if skipped is None else skipped
        self._has_counted = False

    def __len__(self) -> int:
        count = self._files.num_records
        if self._files.uncounted and not self._has_counted:
            self._has_counted = True
            for region in self._files.uncounted:
                self.add_skipped(region)
        return count

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record, as a pyarrow.Schema."""
        whole = self._files.schema
        if self._columns is None:
            return whole
        return pa.schema(map(whole.field, self._columns), metadata=whole.metadata)

    @property
    def paths(self) -> Sequence[str]:
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
        """The regions skipped so far, without repeats, in the order in which they were found: by this dataset, and by
        views of it and datasets made from it, such as those of `select`, `filter` and the verbs."""
        return self._regions.regions

    def projection(self, columns: Sequence[str] | None) -> Sequence[str] | None:
        """The columns to read: those of `open`, or of the caller. Raises SchemaError if there is no such column."""
        if columns is None:
            return self._columns
        check_are_names(columns)
        for name in columns:
            self.check_column(name)
        return list(columns)

    def check_column(self, name: str, file: str | None = None) -> None:
        """Raise SchemaError if there is no such column."""
        if not self._files.schema.get_all_field_indices(name):
            known = ", ".join(self._files.schema.names)
            raise SchemaError(f"no such column; there are: {known}", field=name, file=file)

    def add_skipped(self, region: SkippedRegion) -> None:
        self._regions.add(region)

    def add_skipped_record(self, number: int, region: SkippedRegion) -> None:
        """Add a record to the skipped regions, but only once. Its number identifies it, because the description of the
        same fault may differ from read to read."""
        if number not in self._regions.records:
            self._regions.records.add(number)
            self.add_skipped(region)


def options_of(call: dict[str, Any]) -> Options:
    """The options in a call of `open`."""
    beside = ("source", "format", "columns", "overlays", "hive", "storage")
    return Options(**{word: value for word, value in call.items() if word not in beside})


def check_are_names(columns: Any) -> None:
    """Raise TypeError if `columns` is not a list of names, or None."""
    if isinstance(columns, str):
        raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
    if isinstance(columns, (set, frozenset)):
        raise TypeError("columns takes a list of names; a set has no order")
