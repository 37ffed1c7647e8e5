"""`Loader`: what a training loop iterates over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import SchemaError
from penstock.format import SkippedRegion
from penstock.loader import state as states
from penstock.loader.plan import Part, Plan
from penstock.loader.recipe import Batch, Decode, Made, Recipe
from penstock.loader.sources import records_of
from penstock.loader.stats import LoaderStats, Meter
from penstock.orders import Order, Sequential
from penstock.orders.keys import checked_seed
from penstock.pipeline import default_threads, in_order

if TYPE_CHECKING:
    from penstock.jax import JaxBatches
    from penstock.keras import KerasBatches
    from penstock.torch import TorchBatches

MEMORY_BYTES = 1 << 30
"""Batches that wait for the loop may hold so much."""


class Loader:
    """Batches of a dataset, in an exact order, made by several threads ahead of the loop.

    One `for` is one epoch, the next `for` the next; a loop that is broken off ends its epoch. The
    records of a batch are decided by arithmetic, so that threads, ranks and interruptions change
    nothing: `state_dict` is a few numbers, and a state of any rank loads on any rank of any number
    of ranks.

    Args:
        data: a Dataset; or several, as a list or a dict, laid end to end with the columns they have
            in common.
        batch_size: records in a batch, on each rank.
        order: which record comes when: penstock.Sequential(), Shuffled(seed), …
        drop_last: leave out what is left at the end and does not make a whole batch on every rank.
        uneven: what makes the last step equal on all ranks: "drop" leaves out up to world_size - 1
            records, "wrap" repeats as many from the beginning of the epoch, "pad" fills every batch
            up to batch_size and says in a column `mask`, bool[n], which records count.
        decode: {column: penstock.Image(…)}, or a function of the Arrow column that gives an array.
        map: function of a batch (dict) that gives a batch, called in a thread of the loader. One
            with a parameter `keys` also gets uint64[n]: a number for each record that depends on
            seed, epoch and record alone, to draw its augmentation from.
        map_records: function of a record (dict of values) that gives a record; `keys` is then one
            number. Its results are stacked where their shapes are equal.
        columns: names of those wanted; others are not decoded.
        ragged: lists as "offsets" (a tuple of values and offsets), "pad" or "list", for all columns
            or by name; see `penstock.loader.columns`.
        fill: {column: number} that stands for missing numbers, which are errors otherwise.
        seed: of `keys` and random crops; None is the order's.
        rank, world_size: which part of each step is read here.
        threads: how many work ahead of the loop; None is one for each core, 0 none: batches are then
            made when they are asked for.
        memory_bytes: what waiting batches, and those in the making, may hold together.
        epoch: the first epoch.

    Batches are dicts of NumPy arrays, or what `map` makes of them.

    Raises:
        SchemaError: no such column; datasets that have no column in common.

    While iterating: what `Dataset.take` raises. Where the dataset was opened with `damage="skip"`,
    damaged records (also images that cannot be decoded) are left out of their batch and listed in
    `damage`; with "stop" the epoch ends before the first; with "salvage" images give what they can.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": list(range(10))}, "ten.tfrecord", overwrite=True)
        >>> loader = ps.Loader(ps.open("ten.tfrecord"), batch_size=4, order=ps.Shuffled(seed=1))
        >>> [batch["id"].tolist() for batch in loader]
        [[9, 7, 4, 6], [3, 0, 5, 1], [8, 2]]
        >>> batches = iter(loader)
        >>> first = next(batches)
        >>> state = loader.state_dict()
        >>> state["epoch"], state["position"]
        (1, 4)
    """

    def __init__(
        self,
        data: Any,
        batch_size: int,
        *,
        order: Order | None = None,
        drop_last: bool = False,
        uneven: str = "wrap",
        decode: Decode | None = None,
        map: Callable[..., Any] | None = None,
        map_records: Callable[..., dict[str, Any]] | None = None,
        columns: Sequence[str] | None = None,
        ragged: str | Mapping[str, str] = "offsets",
        fill: Mapping[str, Any] | None = None,
        seed: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        threads: int | None = None,
        memory_bytes: int = MEMORY_BYTES,
        epoch: int = 0,
    ) -> None:
        self.source = records_of(data, columns)
        self.order: Order = Sequential() if order is None else order
        # An order over several sets knows each; any other sees them as one.
        sizes: Any = (
            self.source.sizes if hasattr(self.order, "weights_of_sets") else len(self.source)
        )
        self.plan = Plan(self.order.length(sizes), batch_size, world_size, uneven, drop_last)
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is from 0 to {world_size - 1}, not {rank}")
        if threads is not None and threads < 0:
            raise ValueError(f"threads must be at least 0, not {threads}")
        unknown = [name for name in decode or () if name not in self.source.schema.names]
        if unknown:
            known = ", ".join(self.source.schema.names)
            raise SchemaError(f"no such column to decode; there are: {known}", field=unknown[0])
        self.rank = rank
        self.seed = self.order.seed if seed is None else checked_seed(seed)
        self.threads = default_threads() if threads is None else threads
        self.memory_bytes = memory_bytes
        self._sizes = sizes
        self._meter = Meter(self.threads)
        self._recipe = Recipe(
            self.source,
            dict(decode or {}),
            map,
            map_records,
            ragged,
            fill,
            self.seed,
            max(self.threads, 1),
        )
        self._at = self._next = (epoch, 0)

    def __len__(self) -> int:
        """Batches of a whole epoch, the same on every rank."""
        return self.plan.num_steps()

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._at[0]

    def __iter__(self) -> Iterator[Batch]:
        # All of this happens when the first batch is asked for: Lightning makes iterators that it
        # does not use, and they are no epochs.
        epoch, position = self._at = self._next
        self._next = (epoch + 1, 0)
        yield from self.batches(epoch, position)

    def batches(self, epoch: int, position: int, first: int = 0, every: int = 1) -> Iterator[Batch]:
        """The batches of an epoch from a position on, or every so many of them from the first-th."""
        parts = islice(self.plan.parts(position, self.rank), first, None, every)
        left = len(range(first, self.plan.num_steps(position), every))
        decoding = threading.Lock()

        def make(part: Part) -> Iterator[tuple[Made, Part]]:
            numbers, mask = self._numbers(part, epoch), self._mask(part)
            yield self._recipe.make(numbers, mask, epoch, decoding), part

        results = in_order(
            [lambda: parts],
            make,
            lambda result: result[0].num_bytes,
            max(self.threads, 1),
            self.memory_bytes,
            ahead=self.threads > 0,
        )
        asked = time.perf_counter()
        for made, part in results:
            left -= 1
            given = time.perf_counter()
            self._meter.delivered(made.num_records, made.num_bytes, made.spent, given - asked)
            ends = not left or made.stops
            self._at = (epoch + 1, 0) if ends else (epoch, part.end)
            yield made.batch
            del made
            asked = time.perf_counter()
            self._meter.kept(asked - given)
            if ends:
                break

    def batch(self, epoch: int, position: int, step: int) -> Batch:
        """One batch, made at once: that of a step, counted from a position of an epoch."""
        part = self.plan.part(position, step, self.rank)
        numbers, mask = self._numbers(part, epoch), self._mask(part)
        return self._recipe.make(numbers, mask, epoch, threading.Lock()).batch

    def _numbers(self, part: Part, epoch: int) -> np.ndarray:
        ranges = [
            self.order.take(self._sizes, epoch, start, stop)
            for start, stop in self.plan.positions(part)
        ]
        return ranges[0] if len(ranges) == 1 else np.concatenate(ranges)

    def _mask(self, part: Part) -> np.ndarray | None:
        return self.plan.mask(part) if self.plan.uneven == "pad" else None

    # -- where it stands ------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands: what follows the batches it has been given. JSON, under 1 KiB."""
        return self.state_at(*self._at)

    def state_at(self, epoch: int, position: int) -> dict[str, Any]:
        """The state from which the next `for` begins at a position of an epoch."""
        return states.made(epoch, position, self._guard())

    @property
    def standing(self) -> tuple[int, int]:
        """The epoch and position at which the next `for` begins."""
        return self._next

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `for` go on where a loader stood, of any rank of any number of ranks.

        Raises:
            StateError: the state is of other data, or of another order.
        """
        self._at = self._next = states.loaded(state, self._guard(), self.plan.length)

    def set_epoch(self, epoch: int) -> None:
        """Let the next `for` be this epoch. What a state said of the same epoch stays."""
        if epoch < 0:
            raise ValueError(f"epochs count from 0; there is none of {epoch}")
        if self._next[0] != epoch:
            self._at = self._next = (epoch, 0)

    def _guard(self) -> dict[str, Any]:
        return {
            "order": self.order.spec(),
            "seed": self.seed,
            "num_records": len(self.source),
            "fingerprint": self.source.fingerprint,
        }

    # -- in other worlds. What stands above is imported by its name, when it is asked for. --------

    def torch(self, device: Any = None) -> TorchBatches:
        """The batches as torch's tensors: a torch IterableDataset, to be looped over as it is.

        Args:
            device: where the tensors shall be; None for the arrays themselves, not copied. To a
                CUDA device they are copied beside the model's work, one batch ahead.

        Returns:
            Dicts as the loader gives them; text, bytes and objects are lists.
        """
        return import_module("penstock.torch").TorchBatches(self, device)

    def jax(self, sharding: Any = None, device: Any = None) -> JaxBatches:
        """The batches as JAX's arrays, on their way to the device one batch ahead.

        Args:
            sharding: a jax.sharding.Sharding of global arrays, of which this process has the
                records of its rank.
            device: a jax.Device, where there is no sharding; None for JAX's default.

        Returns:
            Dicts as the loader gives them; text, bytes and objects are lists.
        """
        return import_module("penstock.jax").JaxBatches(self, sharding, device)

    def keras(
        self,
        x: str | Sequence[str] = "image",
        y: str | Sequence[str] | None = "label",
        sample_weight: str | None = None,
    ) -> KerasBatches:
        """The batches as a keras.utils.PyDataset, for `model.fit(..., shuffle=False)`.

        Args:
            x: the column that the model is given; several as a dict of them.
            y: the column, or columns, that it shall learn; None for none.
            sample_weight: a column of weights, such as the "mask" of uneven="pad".

        Returns:
            A PyDataset of (x,), (x, y) or (x, y, sample_weight).
        """
        return import_module("penstock.keras").KerasBatches(self, x, y, sample_weight)

    # -- what it has done -----------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """Where the time went since the loader was made; printed, it says what to change."""
        return self._meter.stats(len(self.source.damage))

    @property
    def damage(self) -> list[SkippedRegion]:
        """What has been passed over so far."""
        return self.source.damage
