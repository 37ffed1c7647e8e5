"""Whether the statistics of a row group exclude all of its records.

Specification: ColumnMetaData.statistics of parquet.thrift. A writer may truncate long minima and maxima of byte strings,
but only so that they remain bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.conditions import Bound
from penstock.formats.parquet._footer import ColumnChunk

_MAY_BE: dict[str, Callable[[Any, Any, Any], bool]] = {
    # whether a column between these limits may hold a value that compares so
    "==": lambda low, high, value: low <= value <= high,
    "<": lambda low, _, value: low < value,
    "<=": lambda low, _, value: low <= value,
    ">": lambda _, high, value: high > value,
    ">=": lambda _, high, value: high >= value,
}


def may_hold(
    row_group: Any,
    chunks: Sequence[ColumnChunk],
    places: Mapping[str, int],
    bounds: Sequence[Bound],
) -> bool:
    """Return whether a row group may hold records within these bounds.

    Args:
        row_group: pyarrow's metadata of the row group.
        chunks: its columns, as the footer describes them.
        places: the places among `chunks` of the columns that may be compared.
        bounds: all of these hold for a record that is wanted.
    """
    for bound in bounds:
        place = places.get(bound.field, len(chunks))
        # pyarrow ends the process if asked about an encrypted column; these have no pages here.
        if place >= len(chunks) or chunks[place].end <= chunks[place].start:
            continue
        found = row_group.column(place).statistics
        if found is None:
            continue
        has_only_nulls = found.has_null_count and found.null_count == row_group.num_rows
        if has_only_nulls or (found.has_min_max and not _fits(found, bound)):
            return False
    return True


def _fits(statistics: Any, bound: Bound) -> bool:
    try:
        low, high = statistics.min, statistics.max
        if not isinstance(low, (int, float, str)):
            return True  # times and decimals compare in other ways
        if isinstance(bound.value, float) and isinstance(low, int):
            low, high = float(low), float(high)  # as Arrow compares them
        return bool(_MAY_BE[bound.operator](low, high, bound.value))
    except (TypeError, ValueError, OverflowError):
        return True  # numbers and texts do not compare; evaluating the condition reports it
