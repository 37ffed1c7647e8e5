"""`loader.jax()` returns batches as JAX arrays, on one device or as global arrays over several processes.

Each process passes its rows of a global array to JAX. JAX does not notice if they are those of another process, or if
their shapes differ, so that each process compiles a different program. Therefore, with several processes,

- the rows that the devices of a process need give the rank of its loader, or are compared with it (`_rows.py`);
- the processes compare the data, the order and the position of their loaders before the first batch of each epoch, by
  an 8-byte digest that each sends. Otherwise damage that only some hosts have, or have in their indexes, gives records
  twice or not at all;
- columns whose shape depends on the records of a batch (`ragged="pad"`) raise an error before the first batch;
- the processes compare the shapes and dtypes of the first batch with each number of records (the last batch of an epoch
  may be shorter), in the same way;
- each process checks that its later batches with the same number of records have the same shapes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from penstock.adapters._jax_integers import check_fits
from penstock.adapters._rows import (
    Facts,
    Rows,
    check_lengths,
    check_ranks,
    checked,
    cut,
    does_not_fit,
    rows_of,
)
from penstock.adapters.views import View, converted, ragged_in
from penstock.errors import SchemaError
from penstock.formats.numpy.dtypes import BFLOAT16, name_of_bits
from penstock.loader.loader import Loader


def _for_jax(column: str, array: np.ndarray) -> np.ndarray:
    """View bits of bfloat16 as JAX's bfloat16, and return other arrays unchanged.

    Raises:
        SchemaError: JAX would wrap a number around, because it stores 64-bit integers in 32 bits.
    """
    if name_of_bits(array.dtype) == BFLOAT16:
        return array.view(jnp.bfloat16)
    check_fits(column, array)
    return array


class JaxBatches(View):
    """The batches of a loader as JAX arrays. `Loader.jax` makes it."""

    def __init__(self, loader: Loader, sharding: Any = None, device: Any = None) -> None:
        super().__init__(loader)
        if sharding is not None and device is not None:
            raise ValueError("a sharding names the devices; pass only one of sharding= and device=")
        self._sharding = None if sharding is None else checked(sharding)
        self._rows = None if self._sharding is None else rows_of(self._sharding)
        self._device = device
        self._shapes: dict[Any, Any] = {}
        self._is_shared = self._sharding is not None and not self._sharding.is_fully_addressable
        """Whether the arrays are on the devices of several processes."""
        if self._is_shared:
            _refuse_padded(loader)
            self._set_rank()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._state = None
        if self._rows is not None:
            self._set_rank()
            self._check(self._rows)
        place = self._on_device if self._sharding is None else self._sharded
        yield from self._ahead(iter(self._loader), place)

    def _set_rank(self) -> None:
        if self._is_shared and self._rows is not None and self._loader.rank_from == "auto":
            self._loader.set_rank(self._rows.ranks[jax.process_index()], self._rows.world_size)

    def _check(self, rows: Rows) -> None:
        """Compare what the processes read with what the sharding needs, before an epoch."""
        loader = self._loader
        misfit = None if loader.has_map else rows.misfit(loader.batch_lengths())
        facts = _facts_of(loader, misfit or 0)
        every = _gathered(facts) if self._is_shared else [facts]
        if self._is_shared:
            state = loader.state_dict()
            check_ranks(rows, every, f"fingerprint {state['fingerprint']} in this process")
        check_lengths(rows, every, self._batch_sizes)

    @property
    def _batch_sizes(self) -> set[int]:
        buckets = self._loader.buckets
        plans = [self._loader.plan] if buckets is None else buckets.plans
        return {plan.batch_size for plan in plans}

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Any]:
        def moved(name: str, array: np.ndarray) -> Any:
            # device_put returns before the copy is done.
            return jax.device_put(_for_jax(name, array), self._device)

        return {name: converted(column, partial(moved, name)) for name, column in batch.items()}

    def _sharded(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert a batch to global arrays, after checking that all processes have the same shapes."""
        for column, value in batch.items():
            name = ragged_in(column, value)
            if name is not None:
                raise SchemaError(
                    "a ragged column cannot be sharded", field=name, hint=_fixed(name)
                )
        if self._is_shared:
            # All processes are at the same step, so all take part in the comparison.
            planned = (self._loader.planned_records, *self._loader.padded_to.values())
            shapes = _shapes_of(batch)
            known = self._shapes.get(planned)
            if known is None:
                _check_same_shapes(shapes)
                self._shapes[planned] = shapes
            elif known != shapes:
                raise _other_shapes(known, shapes)
        return {
            name: converted(column, partial(self._global, name)) for name, column in batch.items()
        }

    def _global(self, name: str, array: np.ndarray) -> Any:
        rows, sharding = self._rows, self._sharding
        if not array.ndim:
            raise SchemaError("a single number has no axis of records to be sharded", field=name)
        if rows is not None and rows.misfit({len(array)}):
            raise does_not_fit(rows, len(array), self._batch_sizes).at(field=name)
        part = _for_jax(name, array)
        world_size = 1 if rows is None else rows.world_size
        shape = (len(part) * world_size, *part.shape[1:])
        try:
            sharding = None if sharding is None else cut(sharding, part.ndim)
            return jax.make_array_from_process_local_data(sharding, part, shape)
        except ValueError as error:
            raise SchemaError(
                f"an array of shape {shape} does not fit the sharding: {error}",
                field=name,
                hint="a PartitionSpec whose axes divide the shape, or columns= without this column",
            ) from error


def _fixed(name: str) -> str:
    return f"pad_to={{{name!r}: length}} of Loader, which gives every batch the same shape"


def _refuse_padded(loader: Loader) -> None:
    """Raise an error if a column is padded to its longest list, which differs between processes."""
    for name in loader.padded_columns:
        raise SchemaError(
            "each process would pad to the longest list of its records, but a global array needs"
            " the same shape on all processes",
            field=name,
            hint=_fixed(name),
        )


def _shapes_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype)
    if isinstance(value, Mapping):
        return {name: _shapes_of(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_shapes_of(part) for part in value]
    return type(value).__name__


def _check_same_shapes(shapes: Any) -> None:
    if not _all_have(shapes):
        raise SchemaError(
            f"the processes have batches of different shapes; this one has {shapes}",
            hint=_SAME_SHAPES,
        )


def _facts_of(loader: Loader, misfit: int) -> Facts:
    state = loader.state_dict()
    read = (state["fingerprint"], state["order"], state["seed"], loader.next_start)
    is_default = loader.rank_from == "default"
    rank, world_size = loader.rank, loader.plan.world_size
    return Facts(jax.process_index(), rank, world_size, is_default, _digest(read), misfit)


def _gathered(facts: Facts) -> list[Facts]:
    """The facts of all processes, which call this at the same time."""
    mine = (facts.process, facts.rank, facts.world_size, facts.is_default, facts.misfit)
    every = multihost_utils.process_allgather(np.array([*mine, *facts.digest], np.uint32))
    return [
        Facts(process, rank, world_size, bool(is_default), tuple(digest), misfit)
        for process, rank, world_size, is_default, misfit, *digest in np.asarray(every).tolist()
    ]


def _digest(facts: Any) -> tuple[int, ...]:
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=8).digest()
    return tuple(np.frombuffer(digest, np.uint32).tolist())


def _all_have(facts: Any) -> bool:
    """Whether `facts` are the same in all processes, which call this at the same time."""
    mine = np.array(_digest(facts), np.uint32)
    every = np.asarray(multihost_utils.process_allgather(mine))
    return bool((every == every[0]).all())


_SAME_SHAPES = (
    'uneven="pad" if damaged records are skipped, Image(size=...), pad_to=..., or a map whose'
    " results always have the same shape"
)


def _other_shapes(known: Any, shapes: Any) -> SchemaError:
    return SchemaError(
        "a batch has a different shape from an earlier batch with the same number of records, so it may also differ from"
        " the batches of other processes",
        expected=known,
        found=shapes,
        hint=_SAME_SHAPES,
    )
