"""Columns whose values are in the names of folders, as Hive and Spark write them: `year=2024/month=01/part-0.parquet`.

The keys of a file are those of the folders in its path. Names and values are decoded as in a URL, and
`__HIVE_DEFAULT_PARTITION__` is null. A column has int64 if all its values are integers, else string; `schema=` may give
it another type. It replaces a column of that name in the file.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.conditions import Filter
from penstock.contract.added import AddedReader
from penstock.contract.format import Reader
from penstock.errors import SchemaError
from penstock.storage.base import Storage
from penstock.storage.hive_names import type_of, values_in
from penstock.storage.local import LocalStorage

_HINT = "open(..., hive=False), which leaves the names of folders alone"


def folders_with_keys(source: Any, paths: Sequence[str]) -> str | bool:
    """Return `source` if it is a folder whose files are all in subfolders with the same keys, in the same order.
    Otherwise False."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    folder = os.path.join(os.fspath(source), "")
    keys: list[str] | None = None
    for path in paths:
        own = list(values_in(path[len(folder) :])) if path.startswith(folder) else []
        keys = own if keys is None else keys
        if not own or own != keys:
            return False
    return folder if keys else False


class HiveColumns:
    """The columns that the paths of a dataset's files give.

    Args:
        paths: the files.
        storage: where they are.
        below: the folder from whose subfolders the keys are taken, or True for all folders of a path.
        schema: `schema=` of open. A pyarrow schema selects among the columns, and gives their types.

    Raises:
        SchemaError: the files have no keys, not all files have the same keys, or a value does not fit its type in the
            schema.
    """

    def __init__(
        self, paths: Sequence[str], storage: Storage, below: bool | str, schema: Any
    ) -> None:
        if isinstance(below, str):
            found = [values_in(path[len(below) :]) for path in paths]
        else:
            found = _keys_of(paths, storage)
        self._is_given = isinstance(schema, pa.Schema)
        self.fields = {
            key: schema.field(key)
            if self._is_given
            else pa.field(key, type_of([own[key] for own in found]))
            for key in found[0]
            if not self._is_given or key in schema.names
        }
        """The columns, by name."""
        self._names = schema.names if self._is_given else None
        self._values = [
            {key: _value(own[key], field, path) for key, field in self.fields.items()}
            for path, own in zip(paths, found, strict=True)
        ]

    def some(self, shards: Sequence[int]) -> HiveColumns:
        """The columns of some of the files only, which are numbered anew."""
        other = copy.copy(self)
        other._values = [self._values[shard] for shard in shards]
        return other

    def of_any_schema(self) -> HiveColumns:
        """These columns beside all columns of a file."""
        other = copy.copy(self)
        other._is_given, other._names = False, None
        return other

    def without(self, schema: Any) -> Any:
        """`schema=` for opening the files, without these columns."""
        if not self._is_given:
            return schema
        fields = [field for field in schema if field.name not in self.fields]
        return pa.schema(fields, schema.metadata)

    def reader(self, shard: int, base: Reader) -> Reader:
        """Return a reader that adds these columns to those of `base`."""
        stored = [field for field in base.schema if field.name not in self.fields]
        fields = [*stored, *self.fields.values()]
        if self._names is not None:
            places = {field.name: field for field in fields}
            fields = [places[name] for name in self._names if name in places]
        schema = pa.schema(fields, base.schema.metadata)
        return AddedReader(base, schema, self._values[shard])

    def answer(self, shard: int, condition: Filter) -> bool | None:
        """Whether a condition is true for all records of a file, or for none. None if the file must be read."""
        values = self._values[shard]
        read = condition.columns
        if read and all(name in values for name in read):
            batch = pa.record_batch([values[name] for name in read], names=read)
            return bool(condition.holds(batch)[0])
        for bound in condition.bounds:
            if bound.field in values:
                value = values[bound.field][0].as_py()
                if not bound.may_hold(value, value, has_nulls=False):
                    return False
        return None

    def digest(self, shard: int) -> str:
        """A text that identifies the values of a file."""
        pairs = self._values[shard].items()
        return "hive\0" + "\0".join(f"{name}={array[0].as_py()!r}" for name, array in pairs)


def _keys_of(paths: Sequence[str], storage: Storage) -> list[dict[str, str | None]]:
    """The keys and values of each file, from the outermost folder inwards. Raises SchemaError if files have different
    keys, or none."""
    is_local = isinstance(storage, LocalStorage)
    found = [values_in(os.path.abspath(path) if is_local else path) for path in paths]
    keys = dict.fromkeys(key for own in found for key in own)
    if not keys:
        message = "hive=True needs folders such as year=2024, and the path has none"
        raise SchemaError(message, file=paths[0], hint=_HINT)
    for path, own in zip(paths, found, strict=True):
        missing = next((key for key in keys if key not in own), None)
        if missing is not None:
            message = "the file is not in a folder for this key, as others are"
            raise SchemaError(message, file=path, field=missing, hint=_HINT)
    return found


def _value(text: str | None, field: pa.Field, path: str) -> pa.Array:
    """The value as an array of length 1."""
    try:
        found = pa.array([text], pa.string()).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"the name of a folder does not fit the schema: {error}",
            file=path,
            field=field.name,
            expected=field.type,
            found=text,
        ) from None
    if text is None and not field.nullable:
        message = "the folder stands for null, and the schema does not let this column be null"
        raise SchemaError(message, file=path, field=field.name)
    return found
