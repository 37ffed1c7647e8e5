"""Divides row groups into parts that fit into one batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.columns.types import row_bytes, storage_of
from penstock.errors import FormatError
from penstock.formats.parquet._file import WHOLE_BYTES, File
from penstock.formats.parquet._weights import (
    BATCH_BYTES,
    Leaf,
    Rows,
    Weight,
    rows_of,
    varies,
    weight_of,
)
from penstock.limits import Limits

CHUNK_BYTES = 16 << 20
"""The size of the parts of a row group larger than SPLIT_BYTES. Decoding a part takes several times its size in memory,
and several parts are decoded in parallel."""
SPLIT_BYTES = 24 << 20
CHUNK_RECORDS = 1 << 20
_FEW_ROWS = 256
_MANY_ROWS = 1 << 16
"""For a row group with at least this many rows, reading page headers and dictionaries first costs little."""
_BYTES_PER_ROW = 4
"""For a smaller row group, page headers and dictionaries are read first if the file has fewer bytes per row than
this."""
_BYTES_PER_COLUMN = 64 << 10
"""In a small file with at least this many bytes per column, page headers are read even if the footer states small
pages, because that costs little."""


class GroupPart(NamedTuple):
    """Records of a row group. `step` is the usual length of a part."""

    group: int
    start: int
    num_records: int
    step: int


class RowGroups:
    """Says how many rows of each row group may be decoded together: by the sizes in the footer, and by the headers of the
    pages if a row may take far more than these say."""

    def __init__(self, file: File, stored: Any, limits: Limits) -> None:
        self._file = file
        self._stored = stored
        self._limits = limits
        self._large_groups: set[int] = set()
        """Row groups with pages that may exceed the limit for one record."""
        self._rows: dict[Any, Rows] = {}

    def parts(self) -> list[GroupPart]:
        """Split the row groups into chunks, by their sizes in the footer."""
        parts: list[GroupPart] = []
        # A row takes at least this many bytes, even if all its values are null or equal.
        widths = [row_bytes(field.type) for field in self._stored]
        most = max(1, min(CHUNK_RECORDS, BATCH_BYTES // max(sum(widths), 1)))
        total = 0
        for group in range(self._file.metadata.num_row_groups):
            row_group = self._file.metadata.row_group(group)
            count, size = row_group.num_rows, row_group.total_byte_size
            if count < 0 or size < 0:
                raise FormatError(f"row group {group} has a negative size", found=min(count, size))
            if size > self._limits.record_bytes:
                self._large_groups.add(group)
            step = most
            if size > SPLIT_BYTES:
                step = max(1, min(step, count * CHUNK_BYTES // size))
            # A footer can claim any number of records, so the number of parts is limited to the
            # number of its bytes.
            step = max(step, -(-count // max(self._file.metadata.serialized_size, 4096)))
            total += count
            parts.extend(
                GroupPart(group, start, min(step, count - start), step)
                for start in range(0, count, step)
            )
        if total != self._file.metadata.num_rows or total >= 1 << 63:
            raise FormatError(
                "the footer's count of records differs from that of its row groups",
                expected=self._file.metadata.num_rows,
                found=total,
            )
        return parts

    def rows_at_once(self, group: int, schema: Any) -> int:
        """Return how many rows of a row group may be decoded together. Raise LimitError if a page or a row is too
        large."""
        key = (group, tuple(schema.names))
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = self._rows_of(group, schema)
        rows.check(self._limits)
        return rows.step

    def _rows_of(self, group: int, schema: Any) -> Rows:
        row_group = self._file.metadata.row_group(group)
        rows = row_group.num_rows
        names = schema.names
        if group not in self._large_groups:
            wanted = set(names)
            stored = [field for field in self._stored if field.name in wanted]
            names = [field.name for field in stored if varies(field.type)]
            if not (rows and names and self._may_take_much(rows, stored)):
                return Rows(rows, 0)
        found = self._weights(group, names)
        values = max([rows, *(one.num_values for one in found)])
        return rows_of(
            found,
            max(rows, 1),
            self._limits,
            partial(self._with_dictionaries, group, names),
            footer_bytes=row_group.total_byte_size,
            has_few_bytes=rows >= _MANY_ROWS
            or self._file.bytes.source.size < values * _BYTES_PER_ROW,
        )

    def _may_take_much(self, rows: int, stored: Sequence[Any]) -> bool:
        """Whether rows may take far more than the footer says, or the check costs little."""
        size = self._file.bytes.source.size
        is_small = size <= WHOLE_BYTES
        if rows >= _MANY_ROWS:
            return True
        if any(pa.types.is_nested(storage_of(field.type)) for field in stored):
            return is_small
        has_few_bytes = _FEW_ROWS <= rows > size // _BYTES_PER_ROW
        return has_few_bytes or (is_small and size >= _BYTES_PER_COLUMN * len(self._stored))

    def _weights(self, group: int, names: Sequence[str]) -> list[Weight]:
        columns = self._file.columns_of(group)
        prefixes = tuple(f"{name}." for name in names)
        found: list[Weight] = []
        for number, column in zip(range(self._file.metadata.num_columns), columns, strict=False):
            described = self._file.metadata.schema.column(number)
            path = described.path
            # With a column "a", pyarrow also reads "a.b", which may be a field of "a" or a separate column.
            if path in names or path.startswith(prefixes):
                is_nested = described.max_repetition_level > 0 or described.max_definition_level > 1
                found.append(
                    weight_of(self._file.bytes.read, Leaf(path, is_nested), column, self._limits)
                )
        return found

    def _with_dictionaries(
        self, group: int, names: Sequence[str], paths: Sequence[str], count: int
    ) -> Iterator[Any]:
        """Yield batches of columns of a row group, with the columns in `paths` as dictionaries."""
        return self._file.open(read_dictionary=paths).iter_batches(
            count, row_groups=[group], columns=names, use_threads=False
        )
