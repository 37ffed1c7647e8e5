"""Checks the record numbers that users give."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any

import numpy as np

from penstock.columns.numbers import outside
from penstock.errors import RecordIndexError


def taken_numbers(records: Sequence[int] | np.ndarray, dataset: Sized) -> np.ndarray:
    """The numbers of some records of a dataset, int64[n], with those that count from the end converted.

    Raises:
        TypeError: they are not whole numbers.
        RecordIndexError: one is out of range.
    """
    found = _array(records, "take")
    if found.dtype == bool and len(found):
        raise TypeError(
            "take expects a list of record numbers, not of truth values; for a mask of the records"
            " use subset(mask)"
        )
    if not len(found):
        return np.zeros(0, np.int64)
    total = len(dataset)
    numbers = _whole(found, total, "take")
    if not outside(numbers, total):
        return numbers
    numbers[numbers < 0] += total
    if outside(numbers, total):
        wrong = (numbers < 0) | (numbers >= total)
        raise RecordIndexError(f"no record {np.asarray(records)[wrong][0]} among {total}")
    return numbers


def ascending_numbers(records: Sequence[int] | np.ndarray, total: int) -> np.ndarray:
    """The numbers of some of `total` records in the order of the files, int64[n]. `records` are these numbers, or a
    mask, bool[total]. Raises as Dataset.subset does."""
    found = _array(records, "subset")
    if found.dtype == bool:
        if len(found) != total:
            raise ValueError(f"the mask has {len(found)} values, but there are {total} records")
        return np.flatnonzero(found).astype(np.int64)
    numbers = _whole(found, total, "subset") if len(found) else np.zeros(0, np.int64)
    if (np.diff(numbers) <= 0).any():
        raise ValueError(
            "the record numbers must be ascending, and each at most once, because a view keeps the order of the files;"
            " np.unique(records) sorts them, order= of a Loader gives another order, and take(records) reads them in"
            " the order given"
        )
    if outside(numbers, total):
        wrong = int(numbers[0] if numbers[0] < 0 else numbers[-1])
        raise RecordIndexError(f"no record {wrong} among {total}")
    return numbers


def _array(records: Any, verb: str) -> np.ndarray:
    found = np.asarray(records)
    # NumPy makes floats of integers that no type of its own holds, and ones of truth values beside integers.
    is_mixed = found.dtype.kind == "f" or (found.dtype.kind in "iu" and _has_truth(records))
    if found.ndim == 1 and is_mixed and not hasattr(records, "__array__"):
        found = np.asarray([*records, None], object)[:-1]
    if found.ndim != 1:
        raise TypeError(f"{verb} expects a list of record numbers, not {type(records).__name__}")
    return found


def _has_truth(records: Any) -> bool:
    return isinstance(records, (list, tuple)) and not {bool, np.bool_}.isdisjoint(
        map(type, records)
    )


def _whole(found: np.ndarray, total: int, verb: str) -> np.ndarray:
    """Convert an array to int64, as a copy."""
    if found.dtype == object:
        return np.asarray(_whole_objects(found.tolist(), total, verb), np.int64)
    if found.dtype.kind not in "iu":
        raise TypeError(f"{verb} expects a list of record numbers, not of {found.dtype}")
    if found.dtype == np.uint64:
        found = np.minimum(found, np.uint64(np.iinfo(np.int64).max))
    return found.astype(np.int64)


def _whole_objects(records: list[Any], total: int, verb: str) -> list[int]:
    """Check record numbers that NumPy cannot convert, such as those beyond int64."""
    for one in records:
        if isinstance(one, (bool, np.bool_)) or not hasattr(one, "__index__"):
            raise TypeError(f"{verb} expects a list of record numbers, and {one!r} is none")
    for one in records:
        if not -total <= int(one) < total:
            raise RecordIndexError(f"no record {one} among {total}")
    return [int(one) for one in records]
