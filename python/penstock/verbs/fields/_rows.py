"""The rows of a table by their keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError


class Rows:
    """Finds the row of a table that has a key."""

    def __init__(self, keys: pa.ChunkedArray, name: str) -> None:
        self._name = name
        self._is_number = pa.types.is_integer(keys.type)
        self._type = keys.type
        if keys.null_count:
            raise SchemaError("the table has a row without a key", field=name)
        self._known: dict[Any, int] = {}
        if self._is_number:
            values = _as_key(keys)
            self._order = np.argsort(values, kind="stable")
            self._sorted = values[self._order]
            twice = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
            if len(twice):
                self._refuse(self._sorted[twice[0]].item())
        else:
            for row, key in enumerate(map(_key, keys.to_pylist())):
                if self._known.setdefault(key, row) != row:
                    self._refuse(key)

    def _refuse(self, key: Any) -> None:
        raise SchemaError(f"the table has the key {key!r} twice", field=self._name)

    def of(self, keys: pa.Array) -> np.ndarray:
        """Return the rows of the keys, int64; -1 for a key that is not in the table."""
        if pa.types.is_integer(keys.type) != self._is_number:
            raise SchemaError(
                "the key has another type in the table than in the records",
                field=self._name,
                expected=str(keys.type),
                found=str(self._type),
            )
        if not self._is_number:
            return np.array([self._known.get(_key(k), -1) for k in keys.to_pylist()], np.int64)
        if not len(self._sorted):
            return np.full(len(keys), -1, np.int64)
        values = _as_key(keys.fill_null(0))
        at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
        found = (self._sorted[at] == values) & ~np.asarray(keys.is_null())
        return np.where(found, self._order[at], -1).astype(np.int64)


def _as_key(numbers: Any) -> np.ndarray:
    """Return integers as keys that compare exactly. NumPy compares int64 with uint64 as floats, so the keys are int64,
    or Python integers if one does not fit int64."""
    values = numbers.to_numpy(zero_copy_only=False)
    if values.dtype != np.uint64:
        return values.astype(np.int64)
    if len(values) and int(values.max()) > np.iinfo(np.int64).max:
        return values.astype(object)
    return values.astype(np.int64)


def _key(value: Any) -> Any:
    """Return text as its UTF-8 bytes, because TFRecord does not distinguish text from bytes."""
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
