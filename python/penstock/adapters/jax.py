"""`loader.jax()` returns batches as JAX arrays, on one device or as global arrays over several processes.

Each process passes its part of a global array to JAX, which computes the shape of the whole array from that part. If
the parts have different shapes, each process compiles a different program, without an error. Therefore, with several
processes,

- the processes compare the data and the order of their loaders before the first batch, by an 8-byte digest that each
  sends. Otherwise damage that only some hosts have, or have in their indexes, gives records twice or not at all;
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

from penstock.adapters.views import View, converted, ragged_in
from penstock.errors import SchemaError, StateError
from penstock.formats.numpy.dtypes import BFLOAT16, name_of_bits
from penstock.loader.loader import Loader


def _with_bfloat16(array: np.ndarray) -> np.ndarray:
    """View bits of bfloat16 as JAX's bfloat16, and return other arrays unchanged."""
    return array.view(jnp.bfloat16) if name_of_bits(array.dtype) == BFLOAT16 else array


class JaxBatches(View):
    """The batches of a loader as JAX arrays. `Loader.jax` makes it."""

    def __init__(self, loader: Loader, sharding: Any = None, device: Any = None) -> None:
        super().__init__(loader)
        if sharding is not None and device is not None:
            raise ValueError("a sharding names the devices; pass only one of sharding= and device=")
        self._sharding = sharding
        self._device = device
        self._shapes: dict[Any, Any] = {}
        if sharding is not None and jax.process_count() > 1:
            _refuse_padded(loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._state = None
        place = self._on_device if self._sharding is None else self._sharded
        yield from self._ahead(iter(self._loader), place)

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Any]:
        # device_put returns before the copy is done.
        return converted(batch, lambda array: jax.device_put(_with_bfloat16(array), self._device))

    def _sharded(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert a batch to global arrays, after checking that all processes have the same shapes."""
        for column, value in batch.items():
            name = ragged_in(column, value)
            if name is not None:
                raise SchemaError(
                    "a ragged column cannot be sharded", field=name, hint=_fixed(name)
                )
        if jax.process_count() > 1:
            # All processes are at the same step, so all take part in the comparison.
            planned = (self._loader.planned_records, *self._loader.padded_to.values())
            shapes = _shapes_of(batch)
            known = self._shapes.get(planned)
            if known is None:
                if not self._shapes:
                    _check_same_records(self._loader)
                _check_same_shapes(shapes)
                self._shapes[planned] = shapes
            elif known != shapes:
                raise _other_shapes(known, shapes)
        return {
            name: converted(column, partial(self._global, name)) for name, column in batch.items()
        }

    def _global(self, name: str, array: np.ndarray) -> Any:
        try:
            part = _with_bfloat16(array)
            return jax.make_array_from_process_local_data(self._sharding, part)
        except ValueError as error:
            raise SchemaError(
                f"an array of shape {array.shape} does not fit the sharding: {error}",
                field=name,
                hint="a batch_size that the devices can share evenly; drop_last=True or "
                'uneven="pad" if only the last batch is too short',
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


def _check_same_records(loader: Loader) -> None:
    """Raise StateError if the ranks do not share the same records in the same order. With one rank
    per loader, the processes read different data on purpose."""
    state = loader.state_dict()
    shared = (state["fingerprint"], state["order"]) if loader.plan.world_size > 1 else None
    if not _all_have(shared):
        raise StateError(
            "the processes read other data, or in another order, so records would come twice or not at all",
            found=f"fingerprint {state['fingerprint']} in this process",
            hint="the same files, arguments and seeds in all processes. Of damaged files, a host whose index is from"
            " before the damage may count other records: repair them, or share the folder of index=",
        )


def _all_have(facts: Any) -> bool:
    """Whether `facts` are the same in all processes, which call this at the same time."""
    mine = np.frombuffer(hashlib.blake2b(repr(facts).encode(), digest_size=8).digest(), np.uint32)
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
