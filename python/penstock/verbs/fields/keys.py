"""Matches the records of two datasets by a key. Only keys and record numbers are held in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock import describe
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError, UnsupportedError
from penstock.verbs.diff import alike

_MOST_KEYS = 3
_WHOLE_KEY = 1 << 20
"""The most characters of a key that is shown in full."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """The unmatched records of one dataset, and their keys as text, all or the first few. A record without a key counts as
    existing in this dataset only."""

    num_records: int
    num_only: int
    num_repeated: int
    keys_only: tuple[str, ...]
    keys_repeated: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matched:
    """The numbers of the matched records, in the order of a, and the unmatched records of both datasets."""

    order_a: np.ndarray
    order_b: np.ndarray
    a: Unmatched
    b: Unmatched


def match(
    a: Dataset, b: Dataset, key: str, threads: int | None, *, all_keys: bool = False
) -> Matched:
    """Match records by a field of integers, strings or bytes. If several records have the same key, the first is used.
    `all_keys`: list all unmatched keys, in full.
    Datasets that skip damage raise UnsupportedError, because their records have no fixed numbers."""
    columns = [_keys(dataset, key, threads) for dataset in (a, b)]
    kinds = [str(column.type) for column in columns]
    if kinds[0] != kinds[1]:
        raise SchemaError(f"is {kinds[0]} in one dataset and {kinds[1]} in the other", field=key)
    both = pa.chunked_array([*columns[0].chunks, *columns[1].chunks], columns[0].type)
    encoded = both.combine_chunks().dictionary_encode()
    names = encoded.dictionary
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    codes_a, codes_b = codes[: len(columns[0])], codes[len(columns[0]) :]
    first_a, first_b = _firsts(codes_a, len(names)), _firsts(codes_b, len(names))
    matched = (first_a >= 0) & (first_b >= 0)
    order_a = np.sort(first_a[matched])
    order_b = first_b[codes_a[order_a]]
    return Matched(
        order_a,
        order_b,
        _unmatched(codes_a, first_a, first_b, names, all_keys=all_keys),
        _unmatched(codes_b, first_b, first_a, names, all_keys=all_keys),
    )


def _keys(dataset: Dataset, key: str, threads: int | None) -> pa.ChunkedArray:
    if dataset.options.damage != "error":
        raise UnsupportedError(
            "records of a dataset that skips damage cannot be matched by a key",
            file=dataset.paths[0],
            hint="penstock repair SOURCE --into NEW, then compare NEW",
        )
    if key not in dataset.schema.names:
        known = ", ".join(dataset.schema.names)
        raise SchemaError(f"no such field; there are: {known}", field=key, file=dataset.paths[0])
    kind = _kind(alike.stripped(pa.nulls(0, dataset.schema.field(key).type)).type)
    if kind is None:
        message = (
            f"{dataset.schema.field(key).type} cannot be a key; integers, strings and bytes can"
        )
        raise SchemaError(message, field=key, file=dataset.paths[0])
    scanned = dataset.scan([key], None, threads)
    return pa.chunked_array([alike.stripped(x.column(0)).cast(kind) for x in scanned], kind)


def _kind(type_: pa.DataType) -> pa.DataType | None:
    if pa.types.is_large_binary(type_):
        return type_
    return pa.int64() if pa.types.is_integer(type_) else None


def _firsts(codes: np.ndarray, num_names: int) -> np.ndarray:
    """Return the first record with each key, or -1 if no record has the key."""
    found = np.full(num_names, -1, np.int64)
    present = np.flatnonzero(codes >= 0)[::-1]
    found[codes[present]] = present  # the last assignment, of the first record, wins
    return found


def _unmatched(
    codes: np.ndarray, first: np.ndarray, other: np.ndarray, names: pa.Array, *, all_keys: bool
) -> Unmatched:
    has_key = codes >= 0
    numbers = np.arange(len(codes))
    is_first = has_key & (first[codes] == numbers) if len(names) else has_key
    is_only = ~has_key | (is_first & (other[codes] < 0)) if len(names) else ~has_key
    is_repeated = has_key & ~is_first
    return Unmatched(
        len(codes),
        int(is_only.sum()),
        int(is_repeated.sum()),
        _texts(codes[is_only], names, all_keys=all_keys),
        _texts(codes[is_repeated], names, all_keys=all_keys),
    )


def _texts(codes: np.ndarray, names: pa.Array, *, all_keys: bool) -> tuple[str, ...]:
    some: Sequence[int] = codes.tolist() if all_keys else codes[: 16 * _MOST_KEYS].tolist()
    each = list(dict.fromkeys(some))[: None if all_keys else _MOST_KEYS]
    width = _WHOLE_KEY if all_keys else 40
    return tuple("null" if code < 0 else describe.value(names[code], width) for code in each)
