"""The base class of `loader.torch()` and `loader.jax()`: it converts batches and keeps the state of the loop.

A view may prepare one batch ahead, so that copies to a device overlap with the model's work. Its state is the
state after the batch that the loop is using, not after the prepared batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.loader.loader import Loader

Moved = TypeVar("Moved")


class View:
    """The batches of a loader as arrays of another library. One `for` loop is one epoch, as with the loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._state: dict[str, Any] | None = None

    @property
    def loader(self) -> Loader:
        """The loader that makes the batches."""
        return self._loader

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def sampler(self) -> View:
        """The view itself, because Lightning calls `set_epoch` of the sampler."""
        return self

    @property
    def batch_sampler(self) -> None:
        """None: Lightning reads it of every validation loader that has a sampler."""
        return None

    def set_epoch(self, epoch: int) -> None:
        """See Loader.set_epoch."""
        self._state = None
        self._loader.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """See Loader.state_dict. Batches prepared ahead of the loop do not count."""
        return self._loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See Loader.load_state_dict."""
        self._state = None
        self._loader.load_state_dict(state)

    def _ahead(self, batches: Iterator[Any], move: Callable[[Any], Moved]) -> Iterator[Moved]:
        """Move each batch to a device, one batch ahead of the loop, except that the first is yielded immediately."""
        waiting: list[tuple[Moved, dict[str, Any]]] = []
        given = 0
        for batch in batches:
            waiting.append((move(batch), self._loader.state_dict()))
            del batch
            if len(waiting) > min(given, 1):
                moved, self._state = waiting.pop(0)
                given += 1
                yield moved
                del moved
        for moved, self._state in waiting:
            yield moved


def converted(value: Any, array: Callable[[np.ndarray], Any]) -> Any:
    """Convert the arrays of a batch, or of a part of it, to arrays of another library. Text, bytes and objects become
    lists; dates stay NumPy arrays."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return value.tolist()
        return value if value.dtype.kind in "mM" else array(value)
    if isinstance(value, Mapping):
        return {name: converted(part, array) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(converted(part, array) for part in value)
    return value


def ragged_in(path: str, value: Any) -> str | None:
    """The path of a ragged array in a column of a batch: the column's own, or that of a field. None if there is none."""
    if isinstance(value, tuple):
        return path
    if not isinstance(value, Mapping):
        return None
    fields = (ragged_in(f"{path}.{name}", part) for name, part in value.items())
    return next((found for found in fields if found is not None), None)
