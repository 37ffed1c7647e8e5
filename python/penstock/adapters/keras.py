"""`loader.keras()` returns batches as a PyDataset for Keras's `fit`, for any backend.

Keras requests batches by number. As long as it requests them in sequence, the loader's threads make them ahead of the
requests. Any other batch is made when it is requested. Keras requests some batches before it trains, so an epoch ends
only when all of its batches have been requested.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, cast

import numpy as np
from keras import config
from keras.utils import PyDataset

from penstock.adapters.views import converted, ragged_in
from penstock.errors import SchemaError
from penstock.loader.loader import Loader


class KerasBatches(PyDataset):
    """The batches of a loader, by their number in the epoch. `Loader.keras` makes it."""

    def __init__(
        self,
        loader: Loader,
        x: str | Sequence[str] = "image",
        y: str | Sequence[str] | None = "label",
        sample_weight: str | None = None,
    ) -> None:
        super().__init__()
        if y is None and sample_weight is not None:
            raise ValueError("sample_weight= weighs the targets, so it needs y=")
        self._loader = loader
        self._wanted = [names for names in (x, y, sample_weight) if names is not None]
        self._lock = threading.RLock()
        self._running: Generator[dict[str, Any]] | None = None
        if loader.source.damage_mode == "stop":
            raise ValueError(
                'Keras expects every step of an epoch; open with damage="skip" instead of "stop"'
            )
        self._begin(*loader.next_start)

    @property
    def loader(self) -> Loader:
        """The loader that makes the batches."""
        return self._loader

    def __len__(self) -> int:
        """The number of batches in the epoch, or, after a state was loaded, the number of batches left."""
        return self._loader.plan.num_steps(self._position)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if not 0 <= index < len(self):
            raise IndexError(f"no batch {index}; the epoch has {len(self)}")
        with self._lock:
            self._requested.add(index)
            batch = self._next(index)
        return tuple(_chosen(batch, names) for names in self._wanted[:2]) + tuple(
            np.asarray(_chosen(batch, name), np.float32) for name in self._wanted[2:]
        )

    def on_epoch_end(self) -> None:
        """Go to the next epoch, if Keras has requested all batches of this epoch."""
        with self._lock:
            if len(self._requested) == len(self):
                self._loader.set_epoch(self._epoch + 1)
                self._begin(*self._loader.next_start)

    def state_dict(self, steps: int = 0) -> dict[str, Any]:
        """The state after `steps` steps of the epoch, as JSON of less than 1 KiB. In `on_train_batch_end(batch)` of a
        callback, pass `batch + 1`."""
        if not 0 <= steps <= len(self):
            raise ValueError(
                f"steps must be from 0 to {len(self)}, the steps of the epoch; not {steps}"
            )
        if not steps:
            return self._loader.state_at(self._epoch, self._position)
        if steps == len(self):
            return self._loader.state_at(self._epoch + 1, 0)
        end = self._loader.plan.part(self._position, steps - 1, self._loader.rank).end
        return self._loader.state_at(self._epoch, end)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See Loader.load_state_dict. In the rest of this epoch, batch 0 is the first batch that is left."""
        with self._lock:
            self._loader.load_state_dict(state)
            self._begin(*self._loader.next_start)

    def set_epoch(self, epoch: int) -> None:
        """See Loader.set_epoch."""
        with self._lock:
            self._loader.set_epoch(epoch)
            self._begin(*self._loader.next_start)

    def _begin(self, epoch: int, position: int) -> None:
        self._stop()
        self._epoch, self._position = epoch, position
        self._requested: set[int] = set()
        self._expected = -1

    def _stop(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _next(self, index: int) -> dict[str, Any]:
        expected, self._expected = self._expected, index + 1
        if index != expected:
            self._stop()
            return self._loader.batch(self._epoch, self._position, index)
        if self._running is None:
            batches = self._loader.batches(self._epoch, self._position, index)
            self._running = cast("Generator[dict[str, Any]]", batches)
        return next(self._running)


def _chosen(batch: Mapping[str, Any], names: str | Sequence[str]) -> Any:
    if not isinstance(names, str):
        return {name: _chosen(batch, name) for name in names}
    if names not in batch:
        known = ", ".join(batch)
        raise SchemaError(f"no such column; the batches have: {known}", field=names)
    ragged = ragged_in(names, batch[names])
    if ragged is not None:
        raise SchemaError("Keras does not take ragged columns", field=ragged, hint='ragged="pad"')
    if config.backend() == "jax":
        check_fits = import_module("penstock.adapters._jax_integers").check_fits
        converted(batch[names], partial(check_fits, names))
    return batch[names]
