"""`Loader`: the batches that a training loop iterates over."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.contract.format import SkippedRegion
from penstock.limits import checked_count, checked_whole
from penstock.loader import _arguments as arguments
from penstock.loader import _state as states
from penstock.loader._added import added_columns
from penstock.loader._bucket_sizes import bucket_sizes, largest_batch
from penstock.loader._buckets import BucketSequence, sequence_of
from penstock.loader._caching import cached, is_compressed, parses_less_with
from penstock.loader._class_names import ClassNames
from penstock.loader._fill import of_columns
from penstock.loader._maker import BatchMaker
from penstock.loader._padding import array_options, padded_paths
from penstock.loader._plan import EpochPlan
from penstock.loader._processes import workers_for
from penstock.loader._progress import line as progress_line
from penstock.loader._ranks import ALONE, Watch, rank_and_world_size, rank_from
from penstock.loader._recipe import Decode, Made, Recipe
from penstock.loader._same import check_same
from penstock.loader._sources import records_of
from penstock.loader._user_code import Batch, UserCode
from penstock.loader.padding import Pad
from penstock.loader.stats import LoaderStats, Meter
from penstock.orders import Mixture, Order
from penstock.orders.keys import checked_epoch, checked_seed

if TYPE_CHECKING:
    from penstock.adapters.jax import JaxBatches
    from penstock.adapters.keras import KerasBatches
    from penstock.adapters.torch import TorchBatches

Ragged = Literal["offsets", "pad", "list"]
MEMORY_BYTES = 1 << 30
"""The default of `memory_bytes`."""


class Loader:
    """Batches of a dataset in an exact order, made by several threads ahead of the loop.

    A batch is a dict of NumPy arrays, or whatever `map` returns. Each `for` loop is one epoch, and the next `for` is
    the next epoch, even after a `break`. The records of a batch are computed from the order and the position alone.
    Threads, ranks and interruptions therefore change nothing, and the state of any rank (`state_dict`, a few numbers)
    loads on any rank of any number of ranks.

    Args:
        data: a Dataset; or a list or dict of Datasets with the same columns, which are concatenated: `columns` or
            `Dataset.select` leaves others out, and `Dataset.rename` gives columns one name.
        batch_size: records in a batch, on each rank. Leave it out if `buckets` has the batch sizes.
        order: the order of the records: penstock.Sequential(), Shuffled(seed), …
        drop_last: leave out the records at the end that do not fill a batch on every rank.
        uneven: how the last step becomes equal on all ranks. "drop" leaves out up to world_size - 1 records. "wrap"
            fills the gaps with records from the beginning of the epoch. "pad" fills every batch up to batch_size and
            adds a column `mask`, bool[n], which is False for records that only fill the batch or replace skipped
            damaged ones. A column `mask` of bool in the data, as `packed` makes, is False for them, too.
        decode: {column: penstock.Image(…)}, or a function from the Arrow column to an array.
        map: function from a batch (dict) to a batch, called in a thread of the loader. It may leave out or add records,
            in all columns. If it has a parameter `keys`, it also gets uint64[n]: a number for each record that depends
            only on seed, epoch and record. Use it to seed the augmentation of that record.
        map_records: function from a record (dict of values) to a record. If it has a parameter `keys`, it also gets the
            number of that record, one uint64. Results of equal shape are stacked.
        columns: names of the columns to read; other columns are not decoded.
        record_numbers: name of an added column, int64[n], with the number of each record; `locate` gives its file.
        source_numbers: name of an added column, int64[n], with the number of each record's dataset, in the order of `data` or
            of a Mixture's weights; `class_names` has the names.
        ragged: how lists become arrays, for all columns or by name: "offsets" (a tuple of values and offsets), "pad"
            or "list"; see `penstock.loader._columns`.
        pad_to: {column: length}: pad the lists of a column with zeros to this length in every batch; for lists of
            lists, one length for each level, outermost first. A longer list is an error. A penstock.Pad in place of the
            length has another value, and adds a mask or the lengths of the lists. Lists that `map` and `map_records` make
            are padded, too. `pad_to`, `ragged` and `fill` also take paths of fields, such as "objects.box".
        truncate: shorten lists that are longer than `pad_to`, or than the largest bucket, to that length.
        buckets: {column: [sizes]}, such as {"tokens": [128, 512, 2048]}: each batch has records of one bucket, the same
            on all ranks, and its lists are padded to the bucket's size. A dict in place of the list gives each bucket
            its batch size: {"tokens": {128: 64, 512: 16, 2048: 4}}. Several keys need the same number of sizes, and one
            dict is enough. A column of integers, or an expression such as "len(text)", chooses a bucket without padding.
            `uneven` applies to each bucket's last step. If the order repeats records, epochs may differ in their batches.
        class_names: {column: [names]}: the order of the classes, the same for training and validation. By default it is
            stored in the files (folders of images, npz, HDF5, and dictionaries of Parquet and Arrow, as `cat.codes` of
            pandas), or else found by one pass over the column.
        fill: {column: value}: the number that replaces missing numbers, and all pixels of missing images and masks, which
            are errors otherwise; or the text or bytes that replace missing ones, which are None otherwise.
        seed: the seed of `keys` and random crops; None: the seed of the order.
        rank, world_size: which part of each step this loader reads. rank="auto" finds both if Ray Train,
            torch.distributed, JAX, torchrun, srun or MPI started this process; otherwise rank is 0 and world_size is 1.
        threads: how many threads work ahead of the loop. None: one for each core. 0: batches are made when requested.
        processes: how many worker processes call `map` and `map_records`, for functions that hold the GIL; all other
            work stays in threads. The functions must be importable: see docs/reference/loader.md.
        memory_bytes: the memory that the loader may add to the process, approximately: batches that are queued, being
            made or used by the loop, windows of `Blocked`, and freed memory that allocators keep. One batch is always
            made, and takes up to three times its size.
        cache: "memory" or a folder on a local disk, for slow sources. The records are copied there while the source is read,
            and read from there once the copy is complete.
        cache_bytes: the maximum size of the copy; a larger one is abandoned with a warning. None: half of the free
            memory, or all of the disk except one twentieth.
        epoch: the first epoch.
        progress: show a line on the terminal (stderr) while rank 0 loops: steps, rates, time left, the wait for data and,
            at the end of an epoch, the bottleneck.

    If the dataset was opened with `damage="skip"`, damaged records and images that cannot be decoded are left out of
    their batch and listed in `damage`; with "stop" the epoch ends before the first of them.

    Raises:
        SchemaError: there is no such column, or the datasets have different columns.
        ChangedError: in a loop, a file was changed, replaced or removed after it was opened; files whose records have
            checksums may grow. A loop also raises the errors of `Dataset.take`.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": list(range(10))}, "ten.tfrecord", overwrite=True)
        >>> loader = ps.Loader(ps.open("ten.tfrecord"), batch_size=4, order=ps.Shuffled(seed=1))
        >>> [batch["id"].tolist() for batch in loader]
        [[2, 1, 9, 0], [7, 8, 3, 4], [5, 6]]
        >>> batches = iter(loader)
        >>> first = next(batches)
        >>> state = loader.state_dict()
        >>> state["epoch"], state["position"]
        (1, 4)
    """

    @arguments.refusing_other_words
    def __init__(
        self,
        data: Any,
        batch_size: int | None = None,
        *,
        order: Order | None = None,
        drop_last: bool = False,
        uneven: Literal["wrap", "drop", "pad"] = "wrap",
        decode: Decode | None = None,
        map: Callable[..., Any] | None = None,
        map_records: Callable[..., dict[str, Any]] | None = None,
        columns: Sequence[str] | None = None,
        record_numbers: str | None = None,
        source_numbers: str | None = None,
        ragged: Ragged | Mapping[str, Ragged] = "offsets",
        fill: Mapping[str, Any] | None = None,
        seed: int | None = None,
        rank: int | Literal["auto"] = ALONE,
        world_size: int = 1,
        threads: int | None = None,
        processes: int = 0,
        memory_bytes: int = MEMORY_BYTES,
        cache: str | os.PathLike[str] | None = None,
        cache_bytes: int | None = None,
        epoch: int = 0,
        progress: bool = False,
        class_names: Mapping[str, Sequence[str]] | None = None,
        pad_to: Mapping[str, int | Sequence[int] | Pad] | None = None,
        truncate: bool = False,
        buckets: Mapping[str, Sequence[int] | Mapping[int, int]] | None = None,
    ) -> None:
        self.order = arguments.checked_order(order)
        self.rank_from = rank_from(rank, world_size)
        """Whether the rank was found ("auto"), passed ("argument"), or neither ("default")."""
        rank, world_size, self._watch = rank_and_world_size(rank, world_size)
        arguments.check_columns(columns)
        arguments.check_functions(decode, map, map_records)
        arguments.check_lists(ragged, pad_to or buckets, truncate)
        mixed = list(self.order.weights) if isinstance(self.order, Mixture) else None
        self.source = records_of(data, columns, mixed)
        schema = self.source.schema
        self._classes = ClassNames(self.source, class_names)
        self.cache = cached(self.source, cache, cache_bytes)
        sizes = bucket_sizes(buckets)
        plan = EpochPlan(0, largest_batch(batch_size, sizes), world_size, uneven, drop_last)
        self._sequence = sequence_of(self.order, self.source, plan, sizes, decode, truncate)
        self.buckets = self._sequence if isinstance(self._sequence, BucketSequence) else None
        """The buckets of `buckets=`, and their order."""
        self.plan = replace(plan, length=self._sequence.length)
        self.rank = arguments.checked_rank(rank, self.plan.world_size)
        arguments.check_known(schema, decode=decode)
        arguments.check_mask(uneven, schema)
        arrays = array_options(
            schema,
            decode or {},
            ragged=ragged,
            fill=of_columns(fill, schema, self.source.every_name),
            pad_to=pad_to,
            buckets=self._sequence.longest(),
            truncate=truncate,
            makes_more=map is not None or map_records is not None,
        )
        check_same(decode, schema)
        arguments.check_damage(self.source.damage_mode, self.plan.world_size)
        self.seed = (self.order.seed or 0) if seed is None else checked_seed(seed)
        self.threads = arguments.checked_threads(threads)
        self.memory_bytes = checked_count("memory_bytes", memory_bytes, 1)
        self._progress = progress
        advice = partial(parses_less_with, self.source, self.order, self.cache)
        compressed = partial(is_compressed, self.source)
        self._meter = Meter(self.threads, advice, self.source.traffic, compressed)
        user = UserCode(map, map_records, arrays)
        self._workers = workers_for(user, checked_count("processes", processes, 0))
        self._recipe = Recipe(
            self.source,
            dict(decode or {}),
            user,
            arrays,
            self._classes,
            self.seed,
            max(self.threads, 1),
            added_columns(self.source, record_numbers, source_numbers),
            self._workers,
        )
        self._maker = self._new_maker()
        self._guarded: dict[str, Any] | None = None
        self._at = self._next = (checked_epoch(epoch), 0)
        self.planned_records = 0
        """Records planned for the latest batch, including skipped damaged records; the same on every rank."""
        self.padded_to: Mapping[str, tuple[int, ...]] = {}
        """The lengths of the latest batch's bucket, by column; empty without buckets."""

    def _new_maker(self) -> BatchMaker:
        return BatchMaker(
            self._sequence,
            self.cache or self.source,
            self.plan,
            self.rank,
            self._recipe,
            self.threads,
            self.memory_bytes,
        )

    def __len__(self) -> int:
        """The number of batches of a complete epoch, the same on every rank. Epochs may differ if there are `buckets`
        and the order repeats or omits records, as Mixture does; then this is the epoch that the next `for` starts."""
        return self.plan.num_steps(self._sequence.begin(self._next[0]))

    def __repr__(self) -> str:
        plan, names = self.plan, ", ".join(self.source.schema.names)
        rank = f", rank {self.rank} of {plan.world_size}" if plan.world_size > 1 else ""
        by_bucket = self.buckets is not None and self.buckets.buckets.batch_sizes
        size = f"up to {plan.batch_size}" if by_bucket else plan.batch_size
        return f"<penstock.Loader {len(self)} batches of {size}, {self.order}{rank}: {names}>"

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return self._at[0]

    @property
    def position(self) -> int:
        """How many records of that epoch all ranks together have delivered before the next batch."""
        return self._sequence.state(*self._at)["position"]

    @property
    def place(self) -> tuple[int, int]:
        """The epoch of the next batch, and the position at which `plan` has it."""
        return self._sequence.placed(*self._at)

    def __iter__(self) -> Iterator[Batch]:
        # The epoch begins when the first batch is requested, because Lightning creates iterators that it never uses.
        epoch, position = self._begin()
        # Other ranks may wait for a batch even if it is empty.
        yield from self.batches(epoch, position, empty=self.plan.world_size > 1)

    def iter_numbers(self) -> Iterator[np.ndarray]:
        """Loop over an epoch like `for`, but yield the record numbers of each batch, int64[n]."""
        epoch, position = self._begin()
        with closing(self._made(epoch, position)) as results:
            for made in results:
                yield made.numbers

    def _begin(self) -> tuple[int, int]:
        epoch, position = self._at = self.next_start
        self._next = (epoch + 1, 0)
        return epoch, position

    def batches(
        self, epoch: int, position: int, first: int = 0, every: int = 1, *, empty: bool = True
    ) -> Iterator[Batch]:
        """Yield every `every`-th batch of an epoch from a position on, beginning with number `first`. If `empty` is
        False, batches whose records were all damaged and skipped are left out."""
        line = None
        if self._progress and not self.rank:
            steps = self.plan.num_steps(self._sequence.begin(epoch))
            line = progress_line(epoch, steps, steps - self.plan.num_steps(position), self.stats())
        with closing(self._made(epoch, position, first, every)) as results:
            try:
                for made in results:
                    if line is not None:
                        line.update(self.stats())
                    if made.num_records or empty:
                        yield made.batch
                    del made
            finally:
                if line is not None:
                    line.end(self.stats())

    def _made(self, epoch: int, position: int, first: int = 0, every: int = 1) -> Generator[Made]:
        self._watch.look()
        left = len(range(first, self.plan.num_steps(position), every))
        if not left:
            self._at = (epoch + 1, 0)
        with closing(self._maker.epoch(epoch, position, first, every)) as results:
            asked, worked = time.perf_counter(), time.process_time()
            for made, part in results:
                left -= 1
                given = time.perf_counter()
                busy = time.process_time() - worked
                self._meter.delivered(
                    made.num_records, made.num_bytes, made.spent, given - asked, busy
                )
                if self.cache is not None:
                    self.cache.warn_once()
                ends = not left or made.stops
                self._at = (epoch + 1, 0) if ends else (epoch, part.end)
                self.planned_records, self.padded_to = part.num_records, made.pad_to
                yield made
                del made
                asked, worked = time.perf_counter(), time.process_time()
                self._meter.kept(asked - given)
                if ends:
                    break

    def batch(self, epoch: int, position: int, step: int) -> Batch:
        """Make the batch of one step, counted from a position of an epoch."""
        return self._maker.one(epoch, position, step).batch

    def __getitem__(self, step: int) -> Batch:
        """Make the batch of one step of the epoch that the next `for` starts.

        This is for samplers and loaders that request items by number. They call `set_epoch` when the next epoch
        begins. A `for` loop is faster because it makes batches ahead.

        Raises:
            IndexError: an epoch has fewer batches.
        """
        step = checked_whole("a step", step)
        if not -len(self) <= step < len(self):
            raise IndexError(f"no batch {step}: an epoch has {len(self)}")
        epoch, position = self._sequence.placed(self._next[0])
        return self.batch(epoch, position, step % len(self))

    def batch_lengths(self) -> set[int]:
        """The different numbers of records in the batches of the next `for`. Skipped damaged records may make a batch
        shorter, and `map` may give it any length."""
        return self._sequence.batch_lengths(self.plan, *self.next_start)

    @property
    def has_map(self) -> bool:
        """Whether `map` may give a batch another number of records."""
        return self._recipe.user.map is not None

    @property
    def padded_columns(self) -> list[str]:
        """Columns padded to the longest list of each batch; empty if `map` or `map_records` may change them."""
        if self._recipe.user.is_any:
            return []
        return list(padded_paths(self.source.schema, self._recipe.arrays, self._recipe.decode))

    def numbers(self, epoch: int, start: int, stop: int) -> np.ndarray:
        """The record numbers at positions start to stop of an epoch, over all ranks: int64[stop - start]."""
        return self._sequence.at(epoch, start, stop)

    def locate(self, number: int) -> tuple[str, int]:
        """The file of a record of the loader, and its number in that file."""
        return self.source.locate(number)

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state of the loop after the batches delivered so far, as JSON of less than 1 KiB."""
        return self.state_at(*self._at)

    def state_at(self, epoch: int, position: int) -> dict[str, Any]:
        """The state with which the next `for` begins at a position of an epoch."""
        return states.made(epoch, self._sequence.state(epoch, position), self._guard())

    @property
    def next_start(self) -> tuple[int, int]:
        """The epoch and position at which the next `for` begins."""
        return self._sequence.placed(*self._next)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next `for` continue from a state, which may be from any rank of any number of ranks.

        Raises:
            StateError: the state belongs to other data or to a different order.
        """
        known = self._classes.known
        self._at = self._next = states.loaded(state, self._guard(), self._sequence, known)

    def set_epoch(self, epoch: int) -> None:
        """Make the next `for` run this epoch, from its beginning or from a position loaded for the same epoch."""
        if self._next[0] != epoch:
            self._sequence.restart()
            self._at = self._next = (checked_epoch(epoch), 0)

    def set_rank(self, rank: int, world_size: int) -> None:
        """Make the next `for` read the part of another rank. `jax(sharding=)` does so with rank="auto"."""
        if (rank, world_size) == (self.rank, self.plan.world_size):
            return
        arguments.check_damage(self.source.damage_mode, world_size)
        epoch, position = self.next_start
        state = self._sequence.state(epoch, position)
        plan = replace(self.plan, world_size=world_size)
        self.rank = arguments.checked_rank(rank, world_size)
        self._sequence = self._sequence.divided(plan)
        self.buckets = self._sequence if isinstance(self._sequence, BucketSequence) else None
        self.plan = replace(plan, length=self._sequence.length)
        self._watch = Watch(is_on=False)
        self._maker = self._new_maker()
        self._at = self._next = (epoch, self._sequence.resume(epoch, state))

    def _guard(self) -> dict[str, Any]:
        # Computed once, because some callers ask for the state at every step, and there may be many files.
        if self._guarded is None:
            known = self._classes.known
            self._guarded = states.guard_of(self.source, self._sequence, self.seed, known)
        return self._guarded

    # -- adapters, which import their library only when called ------------------------------------

    def torch(self, device: Any = None) -> TorchBatches:
        """A torch IterableDataset of dicts of tensors, to iterate over directly. Text, bytes and objects are lists.

        Args:
            device: where the tensors are placed. Copies to a CUDA device run one batch ahead, during the model's
                work. None: the tensors share the memory of the loader's arrays.
        """
        return import_module("penstock.adapters.torch").TorchBatches(self, device)

    def jax(self, sharding: Any = None, device: Any = None) -> JaxBatches:
        """Dicts of JAX arrays, transferred to the device one batch ahead. Text, bytes and objects are lists.

        Args:
            sharding: a jax.sharding.Sharding of global arrays, whose first axis has the records of all ranks. With
                rank="auto", the loader takes rank and world_size from the rows that the devices of this process need.
            device: a jax.Device, used if there is no sharding; None for JAX's default.
        """
        return import_module("penstock.adapters.jax").JaxBatches(self, sharding, device)

    def keras(
        self,
        x: str | Sequence[str] = "image",
        y: str | Sequence[str] | None = "label",
        sample_weight: str | None = None,
    ) -> KerasBatches:
        """A keras.utils.PyDataset of (x,), (x, y) or (x, y, sample_weight), for `model.fit(..., shuffle=False)`.

        Args:
            x: the input column of the model; several columns become a dict.
            y: the target column or columns; None: there is no target.
            sample_weight: a column of weights, such as the "mask" of uneven="pad".
        """
        return import_module("penstock.adapters.keras").KerasBatches(self, x, y, sample_weight)

    def stats(self) -> LoaderStats:
        """Where the time went since the loader was created. `print` also shows what to change."""
        counts = (region.num_records for region in self.source.damage)
        return self._meter.stats(sum(1 if count is None else count for count in counts))

    @property
    def class_names(self) -> dict[str, list[str]]:
        """The names of each column of labels, or of `source_numbers`: a number in a batch is an index into this list.

        Example:
            >>> import pyarrow as pa
            >>> import penstock as ps
            >>> labels = pa.array(["cat", "dog", "cat"]).dictionary_encode()
            >>> _ = ps.write({"label": labels}, "pets.parquet", overwrite=True)
            >>> loader = ps.Loader(ps.open("pets.parquet"), batch_size=3)
            >>> loader.class_names["label"], next(iter(loader))["label"]
            (['cat', 'dog'], array([0, 1, 0]))
        """
        return self._recipe.class_names

    @property
    def damage(self) -> list[SkippedRegion]:
        """The damaged regions that this rank skipped so far. Other ranks read other records, and list their own."""
        return self.source.damage
