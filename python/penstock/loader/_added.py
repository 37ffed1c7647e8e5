"""The columns of a batch that say where its records are from: `record_numbers=` and `source_numbers=` of `ps.Loader`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.errors import SchemaError
from penstock.loader._sources import Records


class AddedColumns(NamedTuple):
    record_numbers: str | None
    """The name of the column with the number of each record."""
    source_numbers: str | None
    """The name of the column with the number of each record's dataset."""

    def of(self, source: Records, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """The columns for the records with these numbers."""
        made: dict[str, np.ndarray] = {}
        if self.record_numbers is not None:
            made[self.record_numbers] = numbers
        if self.source_numbers is not None:
            made[self.source_numbers] = source.owners(numbers)
        return made


def added_columns(source: Records, record_numbers: Any, source_numbers: Any) -> AddedColumns:
    """Check the names of the columns.

    Raises:
        TypeError: one is not a name.
        SchemaError: the batches already have a column of this name.
    """
    given = {"record_numbers": record_numbers, "source_numbers": source_numbers}
    taken = set(source.schema.names)
    for word, name in given.items():
        if name is None:
            continue
        if not isinstance(name, str):
            raise TypeError(f"{word} is the name of a column, not {name!r}")
        if name in taken:
            raise SchemaError(
                f"batches already have a column of this name; give {word}= another name",
                field=name,
            )
        taken.add(name)
    return AddedColumns(record_numbers, source_numbers)
