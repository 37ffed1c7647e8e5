"""Checks the arguments of `packed` and `pieces`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.orders import Mixture, Order
from penstock.orders.keys import checked_epoch

ADDED = {"document": pa.int32(), "position": pa.int32(), "mask": pa.bool_()}
"""The columns that `packed` always adds."""


def checked_columns(ds: Any, column: str | Sequence[str]) -> list[str]:
    """Return the names of the columns to pack, the one with the tokens first."""
    if not isinstance(ds, Dataset):
        how = "try penstock.open"
        if isinstance(ds, (Mapping, list, tuple)):
            how = (
                "pack each of several, and give a Loader {name: packed, …}, with"
                " order=penstock.Mixture({name: weight, …}, seed) to mix them"
            )
        raise TypeError(f"packed takes a Dataset, not {type(ds).__name__}; {how}")
    columns = [column] if isinstance(column, str) else list(column)
    if not columns or len(set(columns)) < len(columns):
        raise ValueError(f"packed takes a column, or a list of different columns, not {column!r}")
    for name in columns:
        _check_column(ds, name, may_be_bool=name != columns[0])
    return columns


def _check_column(ds: Dataset, column: str, *, may_be_bool: bool) -> None:
    names = ds.schema.names
    if column not in names:
        raise SchemaError(f"no such column; there are: {', '.join(names)}", field=column)
    if column in ADDED:
        raise SchemaError(
            "packed adds a column of this name",
            field=column,
            hint='penstock.rename_fields gives the column another name, such as "tokens"',
        )
    type_: Any = ds.schema.field(column).type
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    is_good = is_list and (
        _is_number(type_.value_type) or (may_be_bool and pa.types.is_boolean(type_.value_type))
    )
    if not is_good:
        raise SchemaError(
            f"packed takes a column of lists of numbers, but this column is {type_}",
            field=column,
            hint=_hint_of_lists(column, type_),
        )


def _hint_of_lists(column: str, type_: pa.DataType) -> str | None:
    """How to open numbers as lists: if each list that was seen has one value, the inferred type is that of a number."""
    if not _is_number(type_):
        return None
    stored = "int32" if pa.types.is_integer(type_) else type_
    return f'if these are lists of one value, penstock.open(..., types={{"{column}": "list<{stored}>"}})'


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def _checked_token(ds: Dataset, column: str, name: str, token: Any) -> int | float | None:
    """Return `bos`, `eos` or `pad`, whose name is `name`, as a value of the column."""
    if token is None:
        return None
    type_: Any = ds.schema.field(column).type
    try:
        return pa.scalar(token).cast(type_.value_type).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        message = f"{name}={token!r} does not fit {type_.value_type}"
        raise SchemaError(message, field=column) from error


def checked_pad(ds: Dataset, columns: Sequence[str], pad: Any) -> dict[str, int | float]:
    """Return the value of padding in each column. A single value is that of the tokens."""
    given: Mapping[str, Any] = pad if isinstance(pad, Mapping) else {columns[0]: pad}
    found = _by_column(ds, columns, "pad", {**dict.fromkeys(columns, 0), **given})
    return {name: found.get(name, 0) for name in columns}


def checked_end(
    ds: Dataset, columns: Sequence[str], argument: str, end: Any, pad: Mapping[str, int | float]
) -> dict[str, int | float] | None:
    """Return the value of `bos` or `eos` in each column, or None if nothing is added. A column without a value has that
    of its padding."""
    found = _by_column(ds, columns, argument, end)
    if found and columns[0] not in found:
        raise SchemaError(
            f"{argument}= has no token for this column, so there is no place for the values of the others",
            field=columns[0],
            hint=f"{argument}={{{columns[0]!r}: token, ...}}",
        )
    return {**pad, **found} if found else None


def _by_column(
    ds: Dataset, columns: Sequence[str], argument: str, value: Any
) -> dict[str, int | float]:
    """The values of an argument that is {column: value}, or one value for the tokens. None is no value."""
    given: Mapping[str, Any] = value if isinstance(value, Mapping) else {columns[0]: value}
    for name in given:
        if name not in columns:
            known = ", ".join(columns)
            raise SchemaError(
                f"{argument}= is for the columns that are packed: {known}", field=name
            )
    found = {name: _checked_token(ds, name, argument, one) for name, one in given.items()}
    return {name: one for name, one in found.items() if one is not None}


def checked_record_numbers(name: Any, columns: Sequence[str]) -> str | None:
    """Return the name of the column with the numbers of the records."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"record_numbers is the name of a column, not {name!r}")
    if name in ADDED or name in columns:
        raise SchemaError(
            "the rows already have a column of this name; give record_numbers= another name",
            field=name,
        )
    return name


def checked_order(order: Any, epoch: Any) -> int:
    """Check the order of the documents, and return its epoch."""
    epoch = checked_epoch(epoch)
    if order is None:
        if epoch:
            raise ValueError("epoch= needs an order=, such as penstock.Shuffled(seed=0)")
    elif isinstance(order, type) or not isinstance(order, Order):
        name = getattr(order, "__name__", repr(order))
        raise TypeError(f"order={name} is not an order; try penstock.Shuffled(seed=0)")
    elif isinstance(order, Mixture):
        raise ValueError(
            "packed takes one dataset; pack each, and give the Mixture of the rows to the loader"
        )
    return epoch
