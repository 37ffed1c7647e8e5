"""The base class of `loader.torch()` and `loader.jax()`, for conversion of batches and the state of the loop.

A view may prepare one batch ahead of the loop, so that copies to a device overlap with the model's work. The state
of the view belongs to the batch that the loop has, not to the prepared batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from penstock.loader.loader import Loader

Moved = TypeVar("Moved")


class View:
    """The batches of a loader as another library's arrays. One `for` loop is one epoch, as with the loader."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._state: dict[str, Any] | None = None

    def __len__(self) -> int:
        """Return the number of batches in a whole epoch, which is the same on every rank."""
        return len(self._loader)

    @property
    def sampler(self) -> View:
        """The view itself, because Lightning calls `set_epoch` of a loader's sampler."""
        return self

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
        """Yield each batch after moving it to a device, one batch ahead of the loop. The first batch is yielded before
        the second is moved."""
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
    """Return a batch, or a part of a batch, with its arrays converted to another library's arrays.

    Text, bytes and objects become lists; dates stay NumPy arrays.
    """
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return value.tolist()
        return value if value.dtype.kind in "mM" else array(value)
    if isinstance(value, Mapping):
        return {name: converted(part, array) for name, part in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(converted(part, array) for part in value)
    return value
