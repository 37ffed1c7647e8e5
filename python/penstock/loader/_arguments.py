"""Checks arguments of `ps.Loader` that would otherwise fail only in the middle of the first epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import SchemaError
from penstock.limits import checked_count
from penstock.loader._columns import RAGGED
from penstock.loader.images import Image
from penstock.orders import Order, Sequential


def checked_order(order: Any) -> Order:
    """Check an order, and return it (`Sequential` for None). Other objects, such as the class itself, are refused."""
    if order is None:
        return Sequential()
    if isinstance(order, type) or not isinstance(order, Order):
        name = getattr(order, "__name__", repr(order))
        raise TypeError(f"order={name} is not an order; try penstock.Shuffled(seed=0)")
    return order


def checked_rank(rank: Any, world_size: int) -> int:
    """Check that a rank is smaller than `world_size`, and return it."""
    if checked_count("rank", rank, 0) >= world_size:
        raise ValueError(f"rank is from 0 to {world_size - 1}, not {rank}")
    return int(rank)


def check_damage(mode: str, world_size: int) -> None:
    """Refuse a damage mode that would let ranks wait for each other forever."""
    if mode == "stop" and world_size > 1:
        raise ValueError(
            'damage="stop" ends the epoch of one rank before that of the others, which would'
            ' wait for it; open with damage="skip"'
        )


def check_columns(columns: Any, record_numbers: Any) -> None:
    """Refuse `columns=` that is not a list of different names, and `record_numbers=` that is not a name."""
    if isinstance(columns, str):
        raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"columns names one twice: {', '.join(columns)}")
    if record_numbers is not None and not isinstance(record_numbers, str):
        raise TypeError(f"record_numbers is the name of a column, not {record_numbers!r}")


def check_functions(decode: Any, map: Any, map_records: Any) -> None:
    """Refuse values that are neither a function nor an Image."""
    if decode is not None and not isinstance(decode, Mapping):
        raise TypeError(f"decode is a dict, {{column: penstock.Image(...)}}, not {decode!r}")
    for name, how in (decode or {}).items():
        if not isinstance(how, Image) and not callable(how):
            raise TypeError(f"{name!r} is decoded by a penstock.Image or a function, not {how!r}")
    for word, function in (("map", map), ("map_records", map_records)):
        if function is not None and not callable(function):
            raise TypeError(f"{word} is a function, not {function!r}")


def check_lists(ragged: Any, pad_to: Any, truncate: bool) -> None:
    """Refuse unknown values of `ragged=`, and `truncate=` without a length."""
    for way in ragged.values() if isinstance(ragged, Mapping) else [ragged]:
        if way not in RAGGED:
            raise ValueError(f"ragged={way!r} is not one of {', '.join(RAGGED)}")
    if truncate and not pad_to:
        raise ValueError("truncate=True cuts lists to the lengths of pad_to=, which is missing")


def check_known(schema: pa.Schema, **by_column: Any) -> None:
    """Refuse arguments that name an unknown column. Each is a dict by column, or one text for all columns."""
    for word, given in by_column.items():
        names = () if isinstance(given, str) else given or ()
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            known = ", ".join(schema.names)
            raise SchemaError(f"no such column for {word}=; there are: {known}", field=unknown[0])
