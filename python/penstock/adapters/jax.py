"""`loader.jax()`: batches as JAX's arrays, on one device or as global arrays over many.

A process gives its part of a global array and JAX takes the shape of the whole from it. Where the parts of
two processes had different shapes, each would have an array of its own shape under the same name, and `jit`
would compute something else on each, without an error. So with several processes

- columns whose shape depends on the records of a batch (`ragged="pad"`) are refused from the start;
- the shapes and dtypes of a batch are compared over all processes the first time that its number of records
  comes up (the whole batches, and the last one of an epoch), by 8 bytes from each;
- later batches of as many records must have the same shapes, which each process sees for itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from penstock.adapters.views import View, converted
from penstock.errors import SchemaError
from penstock.formats.numpy.dtypes import BFLOAT16, name_of_bits
from penstock.loader.loader import Loader


def _known(array: np.ndarray) -> np.ndarray:
    """Bits of bfloat16 as JAX's bfloat16."""
    return array.view(jnp.bfloat16) if name_of_bits(array.dtype) == BFLOAT16 else array


class JaxBatches(View):
    """Batches of a loader as JAX's arrays. Made by `Loader.jax`."""

    def __init__(self, loader: Loader, sharding: Any = None, device: Any = None) -> None:
        super().__init__(loader)
        if sharding is not None and device is not None:
            raise ValueError("a sharding says which devices, so give one of sharding= and device=")
        self._sharding = sharding
        self._device = device
        self._shapes: dict[int, Any] = {}
        if sharding is not None and jax.process_count() > 1:
            _refuse_padded(loader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._state = None
        place = self._placed if self._sharding is None else self._placed_alike
        yield from self._ahead(iter(self._loader), place)

    def _placed_alike(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch as global arrays, whose parts have the same shapes in all processes."""
        for name, column in batch.items():
            if isinstance(column, tuple):
                raise SchemaError(
                    "a ragged column cannot be cut into shards", field=name, hint=_fixed(name)
                )
        if jax.process_count() > 1:
            # Every process is at the same step, and so takes part in the same comparisons.
            planned = self._loader.planned_records
            shapes = _shapes_of(batch)
            known = self._shapes.get(planned)
            if known is None:
                _compare(shapes)
                self._shapes[planned] = shapes
            elif known != shapes:
                raise _other_shapes(known, shapes)
        return self._placed(batch)

    def _placed(self, batch: dict[str, Any]) -> dict[str, Any]:
        # JAX returns before the copy is done.
        if self._sharding is None:
            return converted(batch, lambda array: jax.device_put(_known(array), self._device))
        return {name: self._global(name, column) for name, column in batch.items()}

    def _global(self, name: str, column: Any) -> Any:
        return converted(column, lambda array: self._shard(name, array))

    def _shard(self, name: str, array: np.ndarray) -> Any:
        try:
            return jax.make_array_from_process_local_data(self._sharding, _known(array))
        except ValueError as error:
            raise SchemaError(
                f"an array of shape {array.shape} does not fit the sharding: {error}",
                field=name,
                hint="a batch_size that the devices share evenly; drop_last=True or "
                'uneven="pad" where only the last batch is too short',
            ) from error


def _fixed(name: str) -> str:
    return f"pad_to={{{name!r}: length}} of Loader, which gives every batch the same shape"


def _refuse_padded(loader: Loader) -> None:
    """Raise for the first column that each process would pad to the longest of its own lists."""
    for name in loader.padded_columns:
        raise SchemaError(
            "each process would pad to the longest list of its own records, and global arrays have"
            " one shape on all of them",
            field=name,
            hint=_fixed(name),
        )


def _shapes_of(value: Any) -> Any:
    """The shapes and dtypes of a batch, or of part of one."""
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype)
    if isinstance(value, Mapping):
        return {name: _shapes_of(part) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return [_shapes_of(part) for part in value]
    return type(value).__name__


def _compare(shapes: Any) -> None:
    """Raise where another process has a batch of other shapes."""
    mine = np.frombuffer(hashlib.blake2b(repr(shapes).encode(), digest_size=8).digest(), np.uint32)
    every = np.asarray(multihost_utils.process_allgather(mine))
    if (every != every[0]).any():
        raise SchemaError(
            f"the processes have batches of different shapes; this one has {shapes}",
            hint=_ALIKE,
        )


_ALIKE = (
    'uneven="pad" where damaged records are skipped, Image(size=...), pad_to=..., or a map whose'
    " results have one shape"
)


def _other_shapes(known: Any, shapes: Any) -> SchemaError:
    return SchemaError(
        "a batch has other shapes than an earlier one of as many records, so they may also differ from"
        " those of other processes",
        expected=known,
        found=shapes,
        hint=_ALIKE,
    )
