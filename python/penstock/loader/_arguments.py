"""Checks the arguments of `ps.Loader`, so that a wrong argument fails immediately, not during the first epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

import pyarrow as pa

from penstock.engine.pipeline import default_threads
from penstock.errors import SchemaError
from penstock.limits import checked_count
from penstock.loader._padding import RAGGED
from penstock.loader.images import Image
from penstock.orders import Order, Sequential

P = ParamSpec("P")
_OTHER_WORDS = {
    "shuffle": "order=penstock.Shuffled(seed=0)",
    "sampler": "order=, such as penstock.Shuffled(seed=0) or penstock.Weighted(weights, seed=0)",
    "batch_sampler": "order= and batch_size=, or buckets= for records of similar length",
    "generator": "order=penstock.Shuffled(seed=0)",
    "num_workers": "threads=, or processes= for functions in Python",
    "persistent_workers": "threads=, which stay for all epochs",
    "worker_init_fn": "map=, which needs no workers",
    "collate_fn": "map= for a function of a batch, and ragged= or pad_to= for lists",
    "transform": "map_records= for a function of a record, or map= for one of a batch",
    "prefetch_factor": "memory_bytes=, which limits the batches that are made ahead",
    "pin_memory": 'loader.torch(device="cuda"), which pins what it copies',
}
"""What torch's DataLoader and datasets call it, and what to write instead."""


def refusing_other_words(init: Callable[P, None]) -> Callable[P, None]:
    """Let the TypeError of an unknown keyword say what does the same."""

    @wraps(init)
    def checked(*args: P.args, **words: P.kwargs) -> None:
        for word in words.keys() & _OTHER_WORDS.keys():
            raise TypeError(f"penstock.Loader has no {word}=; use {_OTHER_WORDS[word]}")
        init(*args, **words)

    return checked


def checked_order(order: Any) -> Order:
    """Check an order and return it (`Sequential` for None). An order class instead of an instance is refused."""
    if order is None:
        return Sequential()
    if isinstance(order, type) or not isinstance(order, Order):
        name = getattr(order, "__name__", repr(order))
        raise TypeError(f"order={name} is not an order; try penstock.Shuffled(seed=0)")
    return order


def checked_threads(threads: Any) -> int:
    return default_threads() if threads is None else checked_count("threads", threads, 0)


def checked_rank(rank: Any, world_size: int) -> int:
    if checked_count("rank", rank, 0) >= world_size:
        asked = "; give world_size=, too, or rank='auto'" if world_size == 1 else ""
        raise ValueError(f"rank must be from 0 to {world_size - 1}, not {rank}{asked}")
    return int(rank)


def check_damage(mode: str, world_size: int) -> None:
    """Refuse a damage mode that would let ranks wait for each other forever."""
    if mode == "stop" and world_size > 1:
        raise ValueError(
            'damage="stop" can end the epoch of one rank early, and the other ranks would wait for it'
            ' forever; open with damage="skip"'
        )


def check_columns(columns: Any) -> None:
    if isinstance(columns, str):
        raise TypeError(f"columns takes a list of names, such as [{columns!r}]")
    if columns is not None and len(set(columns)) < len(columns):
        raise ValueError(f"columns has the same name twice: {', '.join(columns)}")


def check_functions(decode: Any, map: Any, map_records: Any) -> None:
    if decode is not None and not isinstance(decode, Mapping):
        raise TypeError(f"decode is a dict, {{column: penstock.Image(...)}}, not {decode!r}")
    for name, how in (decode or {}).items():
        if not isinstance(how, Image) and not callable(how):
            raise TypeError(f"decode of {name!r} is a penstock.Image or a function, not {how!r}")
    for word, function in (("map", map), ("map_records", map_records)):
        if function is not None and not callable(function):
            raise TypeError(f"{word} is a function, not {function!r}")


def check_lists(ragged: Any, pad_to: Any, truncate: bool) -> None:
    for way in ragged.values() if isinstance(ragged, Mapping) else [ragged]:
        if way not in RAGGED:
            raise ValueError(f"ragged={way!r} is not one of {', '.join(RAGGED)}")
    if truncate and not pad_to:
        raise ValueError(
            "truncate=True shortens lists to the lengths in pad_to=, and pad_to= is missing"
        )


def check_mask(uneven: str, schema: pa.Schema) -> None:
    """Refuse a column `mask` that the one of uneven="pad" would replace. Truth values of fixed shape become False in the
    records that only fill a batch."""
    if uneven != "pad" or "mask" not in schema.names:
        return
    type_: Any = schema.field("mask").type
    while pa.types.is_fixed_size_list(type_):
        type_ = type_.value_type
    if not pa.types.is_boolean(type_):
        raise SchemaError(
            'uneven="pad" adds a column of this name',
            field="mask",
            hint="penstock.rename_fields gives the column of the data another name",
        )


def check_known(schema: pa.Schema, **by_column: Any) -> None:
    """Refuse arguments that name an unknown column. Each is a dict by column, or one string for all columns."""
    for word, given in by_column.items():
        names = () if isinstance(given, str) else given or ()
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            known = ", ".join(schema.names)
            raise SchemaError(f"no such column for {word}=; there are: {known}", field=unknown[0])
