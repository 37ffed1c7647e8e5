"""The keys of `buckets=`: what decides the bucket of a record.

A key is a column of lists, a column of integers, or an expression in the language of conditions that gives integers, such
as `len(text)`. The lists of a column that is a key are padded to the size of the bucket. Other keys pad nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_bytes, is_text
from penstock.conditions import expression_of
from penstock.datasets.dataset import Dataset
from penstock.datasets.lengths import lengths_of
from penstock.datasets.scan import numbered_batches
from penstock.errors import SchemaError
from penstock.loader._padding import has_offsets
from penstock.loader._sources import Records


class KeyValues(NamedTuple):
    """What decides the buckets of all records."""

    by_key: dict[str, np.ndarray]
    """By key, the length or the value of each record: integers, [num_records]."""
    lists: frozenset[str]
    """The keys that are columns of lists."""
    padded: frozenset[str]
    """Those that the loader reads."""


def values_of(records: Records, keys: Sequence[str], decoded: Collection[str]) -> KeyValues:
    """Read what decides the buckets, also from columns that the loader does not read. Lengths of lists are kept in the
    index.

    Raises:
        SchemaError: a key is neither a column of lists or integers nor an expression that gives integers; `decoded`
            has a column of lists that is a key; or a value is missing.
    """
    lists = [key for key in keys if all(_is_list(one.schema, key) for one in records.datasets)]
    for name in lists:
        if name in decoded:
            raise SchemaError("buckets= cannot pad a column that decode= decodes", field=name)
    each = [lengths_of(dataset, lists) for dataset in records.datasets] if lists else []
    found = {name: np.concatenate([lengths[name] for lengths in each]) for name in lists}
    for key in keys:
        if key not in found:
            parts = [_integers(dataset, key) for dataset in records.datasets]
            found[key] = np.concatenate(parts)
    padded = frozenset(name for name in lists if name in records.schema.names)
    return KeyValues({key: found[key] for key in keys}, frozenset(lists), padded)


def _is_list(schema: pa.Schema, name: str) -> bool:
    return name in schema.names and has_offsets(schema.field(name).type)


def _integers(dataset: Dataset, key: str) -> np.ndarray:
    """The values of a key that is not a list, int64[num_records]. A damaged record has 0 if damage is skipped."""
    dataset = _with_key(dataset, key)
    found = np.zeros(len(dataset), np.int64)
    for shard, numbers, batch in numbered_batches(dataset, [key], dataset.add_skipped):
        column: Any = batch.column(key)
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            raise SchemaError(
                "the value that decides the bucket is missing (null)",
                file=dataset.paths[shard],
                record=int(dataset.files.in_file(shard, numbers[row : row + 1])[0]),
                field=key,
                hint="ds.filter, to leave out such records",
            )
        try:
            values = column.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise SchemaError(f"a value is not an int64: {error}", field=key) from None
        found[dataset.files.firsts[shard] + numbers] = values.to_numpy(zero_copy_only=False)
    return found


def _with_key(dataset: Dataset, key: str) -> Dataset:
    """The dataset with a column of integers that has the name of the key."""
    names = dataset.schema.names
    if key not in names:
        dataset = dataset.select(_columns_of(key, names)).with_columns({key: key})
    type_ = dataset.schema.field(key).type
    if not pa.types.is_integer(type_):
        raise SchemaError(
            f"buckets= takes columns of lists or integers, and expressions of integers, but this is {type_}",
            field=key,
            hint=_hint(key, type_, is_column=key in names),
        )
    return dataset


def _columns_of(key: str, names: Sequence[str]) -> list[str]:
    """The columns that an expression reads."""
    try:
        columns = expression_of(key, names).columns
    except SchemaError as error:
        known = ", ".join(names)
        raise SchemaError(
            f"no such column for buckets=; there are: {known}", field=error.field
        ) from None
    except ValueError as error:
        raise SchemaError(
            f"buckets= takes columns, and expressions such as len(text); this is neither: {error}",
            field=key,
        ) from None
    if not columns:
        known = ", ".join(names)
        raise SchemaError(f"buckets= needs a column, and this has none of: {known}", field=key)
    return columns


def _hint(key: str, type_: pa.DataType, *, is_column: bool) -> str:
    if is_column and (is_text(type_) or is_bytes(type_)):
        return f'buckets={{"len({key})": […]}}'
    return f"buckets={{'cast({key}, \"int64\")': […]}}"
