"""Whether the statistics of a row group exclude all of its records.

Specification: ColumnMetaData.statistics of parquet.thrift. A writer may truncate long minima and maxima of byte
strings, but they must remain bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.conditions import Bound
from penstock.formats.parquet._footer import ColumnChunk


def may_hold(
    row_group: Any,
    chunks: Sequence[ColumnChunk],
    places: Mapping[str, int],
    bounds: Sequence[Bound],
) -> bool:
    """Return whether a row group may hold records within all these bounds. `row_group` is its metadata from pyarrow,
    `chunks` its columns from the footer. `places` maps the names of columns that may be compared to their positions in
    `chunks`."""
    for bound in bounds:
        place = places.get(bound.field, len(chunks))
        # pyarrow crashes the process if it is asked about an encrypted column, which has no pages
        # here.
        if place >= len(chunks) or chunks[place].end <= chunks[place].start:
            continue
        found = row_group.column(place).statistics
        if found is None:
            continue
        has_only_nulls = found.has_null_count and found.null_count == row_group.num_rows
        if has_only_nulls:
            if not bound.may_hold(None, None):
                return False
        elif found.has_min_max and not _fits(found, bound):
            return False
    return True


def _fits(statistics: Any, bound: Bound) -> bool:
    try:
        has_nulls = not statistics.has_null_count or statistics.null_count > 0
        return bound.may_hold(statistics.min, statistics.max, has_nulls=has_nulls)
    except (TypeError, ValueError, OverflowError):
        return True  # pyarrow cannot express the values
