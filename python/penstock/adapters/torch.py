"""`loader.torch()` returns batches as torch tensors, in this process or in DataLoader's workers.

In the process of the training loop, tensors share the memory of the loader's arrays. Batches are copied to a CUDA
device from pinned memory, on a separate stream, one batch ahead.

Inside `DataLoader(loader.torch(), batch_size=None, num_workers=k)`, worker i makes the batches i, i + k, i + 2k …
DataLoader takes turns among its workers, so the order is the loader's. `_epoch_in` explains how the workers agree on
the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import currentframe
from itertools import count
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from penstock.adapters.views import View, converted
from penstock.errors import StateError
from penstock.formats.numpy.dtypes import BFLOAT16, name_of_bits
from penstock.loader.loader import Loader


class TorchBatches(View, IterableDataset[Any]):
    """The batches of a loader as torch tensors. `Loader.torch` makes it."""

    def __init__(self, loader: Loader, device: Any = None) -> None:
        super().__init__(loader)
        self._device = None if device is None else torch.device(device)
        self._shared = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._shared[0] = loader.next_start[0]
        self._skip: int | None = None
        self._iterations = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        _refuse_batches_of_batches()
        worker = get_worker_info()
        return self._here() if worker is None else self._part_of(worker)

    def _here(self) -> Iterator[dict[str, Any]]:
        self._state = None
        batches = iter(self._loader)
        if self._device is None:
            moved = (converted(batch, as_tensor) for batch in batches)
        elif self._device.type == "cuda":
            moved = self._by_stream(batches, self._device)
        else:
            moved = self._ahead(batches, self._on_device)
        for batch in moved:
            self._shared[0] = self._loader.next_start[0]
            yield batch
            del batch  # may free its memory before the next batch is made

    def set_epoch(self, epoch: int) -> None:
        """See Loader.set_epoch. It also applies in DataLoader's workers."""
        super().set_epoch(epoch)
        self._shared[0] = epoch

    def state_dict(self) -> dict[str, Any]:
        """See Loader.state_dict. Batches prepared ahead of the loop do not count. If DataLoader's workers make the
        batches, this process does not know the position, and raises StateError."""
        if get_worker_info() is None and int(self._shared[0]) >> 32:
            raise StateError(
                "the batches are made in DataLoader's workers, so this process does not know how"
                " many of them the loop has used",
                hint="num_workers=0, because the loader has threads; or torchdata's StatefulDataLoader",
            )
        return super().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See Loader.load_state_dict. In a DataLoader worker, the state must be that of the worker with the same
        number."""
        super().load_state_dict(state)
        self._skip = state.get("skip")
        if get_worker_info() is None:
            self._shared[0] = self._loader.next_start[0]

    # -- on a device ----------------------------------------------------------------------------

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Any]:
        return converted(batch, lambda array: as_tensor(array).to(self._device))

    def _by_stream(self, batches: Iterator[Any], device: torch.device) -> Iterator[dict[str, Any]]:
        stream = _stream_of(device)

        def move(batch: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor], Any]:
            tensors: list[torch.Tensor] = []

            def copied(array: np.ndarray) -> torch.Tensor:
                tensors.append(as_tensor(array).pin_memory().to(device, non_blocking=True))
                return tensors[-1]

            with torch.cuda.stream(stream):
                return converted(batch, copied), tensors, stream.record_event()

        for batch, tensors, copied in self._ahead(batches, move):
            # The model's stream waits for the copy of this batch only, and the copy stays until that stream has read
            # it.
            model = torch.cuda.current_stream(device)
            model.wait_event(copied)
            for tensor in tensors:
                tensor.record_stream(model)
            yield batch

    # -- in a worker of DataLoader --------------------------------------------------------------

    def _part_of(self, worker: Any) -> Iterator[dict[str, Any]]:
        if self._device is not None and self._device.type != "cpu":
            raise ValueError(
                f"DataLoader's workers make CPU tensors, not tensors on {self._device}; use"
                " loader.torch() without device=, and DataLoader(pin_memory=True), or no workers"
            )
        self._loader.set_epoch(self._epoch_in(worker))
        epoch, position = self._loader.next_start
        skip = worker.id if self._skip is None else self._skip
        self._skip = None
        self._state = {**self._loader.state_at(epoch, position), "skip": skip}
        return self._every(epoch, position, skip, worker.num_workers)

    def _every(self, epoch: int, position: int, skip: int, every: int) -> Iterator[dict[str, Any]]:
        """Yield every `every`-th batch, beginning `skip` batches after a position."""
        plan, rank = self._loader.plan, self._loader.rank
        batches = self._loader.batches(epoch, position, skip, every)
        for step, batch in zip(count(skip, every), batches, strict=False):
            end = plan.part(position, step, rank).end
            self._state = {**self._loader.state_at(epoch, end), "skip": every - 1}
            yield converted(batch, as_tensor)

    def _epoch_in(self, worker: Any) -> int:
        """The epoch of this pass over a DataLoader, in one of its workers.

        Workers live for one pass, or for several if they are persistent, and a pass may be abandoned before all of
        them have started. So the workers of a pass agree by one number in shared memory: 32 bits identify the latest
        pass, and 32 bits are the epoch of the next pass. The first worker of a pass writes the number. Workers that
        start at the same time write the same number.
        """
        self._iterations += 1
        mine = hash((worker.seed - worker.id, self._iterations)) % ((1 << 31) - 1) + 1
        last, following = divmod(int(self._shared[0]), 1 << 32)
        epoch = following - 1 if last == mine else following
        if self._skip is not None:  # a state was loaded here
            epoch = self._loader.next_start[0]
        self._shared[0] = (mine << 32) + epoch + 1
        return epoch


def _stream_of(device: torch.device) -> Any:
    """A stream of a device. Raises RuntimeError that says what is missing: a driver, a GPU, or CUDA in torch."""
    try:
        return torch.cuda.Stream(device)
    except (AssertionError, RuntimeError) as error:
        reason = error
    try:
        torch.cuda.init()  # says more than the stream
    except (AssertionError, RuntimeError) as error:
        reason = error
    raise RuntimeError(f"no batch can be copied to {str(device)!r}: {reason}") from reason


def _refuse_batches_of_batches() -> None:
    """Raise ValueError if a DataLoader with a `batch_size` begins an epoch: it would make batches of these batches. A
    DataLoader tells its data nothing, so this looks at its fetcher, which calls `iter`."""
    frame = currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    caller = None if frame is None else frame.f_locals.get("self")
    if getattr(caller, "auto_collation", False) is True and hasattr(caller, "collate_fn"):
        raise ValueError(
            "loader.torch() gives whole batches, and this DataLoader would make batches of batches; use"
            " DataLoader(loader.torch(), batch_size=None), or loop over loader.torch() itself"
        )


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """Convert an array to a tensor, which shares the array's memory if torch allows it."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    if name_of_bits(array.dtype) == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
