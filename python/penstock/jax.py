"""`loader.jax()`: batches as JAX's arrays, on one device or as global arrays over many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from penstock.errors import SchemaError
from penstock.formats.dtypes import BFLOAT16, name_of_bits
from penstock.loader.loader import Loader
from penstock.views import View, converted


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

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self._state = None
        yield from self._ahead(iter(self._loader), self._placed)

    def _placed(self, batch: dict[str, Any]) -> dict[str, Any]:
        # JAX returns before the copy is done.
        if self._sharding is None:
            return converted(batch, lambda array: jax.device_put(_known(array), self._device))
        return {name: self._global(name, column) for name, column in batch.items()}

    def _global(self, name: str, column: Any) -> Any:
        if isinstance(column, tuple):
            raise SchemaError(
                "a ragged column cannot be cut into shards", field=name, hint='ragged="pad"'
            )
        return converted(column, lambda array: self._shard(name, array))

    def _shard(self, name: str, array: np.ndarray) -> Any:
        try:
            return jax.make_array_from_process_local_data(self._sharding, _known(array))
        except ValueError as error:
            raise SchemaError(
                f"an array of shape {array.shape} does not fit the sharding: {error}",
                field=name,
                hint='drop_last=True, or uneven="pad", where only the last batch is too short',
            ) from error
