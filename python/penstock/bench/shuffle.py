"""`bench shuffle` compares orders: how well they mix, and the cost of reading in these orders."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import penstock as ps
from penstock.bench.counting import counting
from penstock.bench.epochs import ReadingPlan, deliver, plan_of
from penstock.bench.labels import layout_of
from penstock.bench.measure import (
    Machine,
    Measured,
    Noise,
    NoiseProbe,
    Progress,
    machine,
    measured,
)
from penstock.bench.mixing import (
    MOST_POSITIONS,
    Layout,
    Mix,
    Mixing,
    compared,
    mean_of,
    mix_of,
    numbers_of,
)
from penstock.bench.sample import name_of, opened
from penstock.bench.words import seconds as in_words
from penstock.storage import Storage

HOW = (
    "How orders mix is computed, not timed: over whole batches of one epoch, up to "
    f"{MOST_POSITIONS:,} positions in batches spread evenly. Each figure is divided by the same figure "
    "of exact shuffles with three other seeds. Reading is timed with the files in the page cache, by "
    "one thread that reads batch after batch, with orders in turn, and scaled to an epoch. Bytes, "
    "reads and seeks are counted in a separate pass, without those of an index. If the waiting "
    "records fit the window, and are less than three quarters of all, a chunk is read whole when its "
    "first record is needed, and its other records wait. Otherwise each batch is one take of its records."
)


@dataclass(frozen=True, slots=True)
class Disk:
    """A model of a disk. Its figures are given, not measured."""

    name: str
    seek_ms: float
    mb_per_s: float

    def seconds(self, seeks: float, num_bytes: float) -> float:
        return seeks * self.seek_ms / 1e3 + num_bytes / (self.mb_per_s * 1e6)


DISKS = (
    Disk("hard disk", 8, 150),
    Disk("SATA SSD", 0.1, 500),
    Disk("object store", 30, 100),
)


@dataclass(frozen=True, slots=True)
class OrderRow:
    """The results for one order. Figures for an epoch are scaled from `measured_records`."""

    name: str
    spec: dict[str, Any]
    mix: Mix
    mixing: Mixing
    by_chunks: bool
    window_bytes: int
    """Bytes of the waiting records, approximately, or of one batch if the order is read by records."""
    seconds: Measured
    """Seconds for an epoch, read from the page cache."""
    num_bytes: float
    reads: float
    seeks: float
    block_bytes: float
    disk_seconds: tuple[float, ...]
    """Seconds for an epoch on each disk, by its model, without decoding."""
    measured_records: int
    path: tuple[tuple[float, float], ...]
    """Some (position, record) pairs, as fractions of an epoch."""


@dataclass(frozen=True, slots=True)
class ShuffleReport:
    """The result of `shuffle`."""

    source: str
    num_records: int
    num_bytes: int
    num_shards: int
    num_chunks: int
    batch_size: int
    label: str | None
    num_labels: int | None
    rows: tuple[OrderRow, ...]
    disks: tuple[Disk, ...]
    sentences: tuple[str, ...]
    machine: Machine
    noise: Noise
    seconds: float
    how: str = field(default=HOW)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def default_orders(num_records: int, num_shards: int, num_chunks: int, seed: int) -> dict[str, Any]:
    """Return the orders that are compared by default.

    If there are several shards, buffers read them interleaved, as pipelines of tf.data and WebDataset do. Buffers and
    windows that would hold all records are left out, because they are exact shuffles.
    """
    found: dict[str, Any] = {"Sequential": ps.Sequential()}
    over = ps.Interleaved() if num_shards > 1 else None
    if over is not None:
        found["Interleaved"] = over
    for size in (1_000, 10_000):
        if size < num_records:
            found[f"Buffered {size:,}"] = ps.Buffered(seed, size, over)
    for window in (8, 32):
        if window < num_chunks:
            found[f"Blocked {window}"] = ps.Blocked(seed, window_chunks=window)
    found["Shuffled"] = ps.Shuffled(seed)
    return found


def shuffle(
    source: Any,
    *,
    orders: Mapping[str, Any] | None = None,
    batch_size: int = 256,
    label: str | None = None,
    seed: int = 0,
    window_bytes: int = 256 << 20,
    rounds: int = 3,
    seconds: float = 60,
    disks: Sequence[Disk] = DISKS,
    progress: Progress | None = None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ShuffleReport:
    """Compare orders on a dataset: how they mix, what they read, how long an epoch takes.

    Args:
        source: as for `open`, or a Dataset, whose chosen columns are read.
        orders: the orders by name; None for penstock's own, from `Sequential` to `Shuffled`.
        batch_size: the number of records in a batch.
        label: the column whose values should be mixed in a batch; None detects a column of class
            labels or integers, if there is one.
        seed: the seed of the default orders.
        window_bytes: the memory for records that wait after their chunk was read.
        rounds: how often each order is timed.
        seconds: the total time for timing, approximately.
        disks: the disks for which the time of an epoch is estimated.
        progress: called with the name of the current measurement and the finished fraction.
        storage, storage_options: as for `open`.

    Raises:
        ValueError: there are fewer than two records, or no such label.
        PenstockError: the data is damaged.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"label": [n // 100 for n in range(1000)]}, "sorted.arrow", overwrite=True)
        >>> report = ps.bench.shuffle("sorted.arrow", batch_size=50, rounds=1, seconds=0.1)
        >>> row = next(row for row in report.rows if row.name == "Shuffled")
        >>> 0.8 < row.mixing.moved < 1.2
        True
    """
    begun = time.monotonic()
    progress = progress or (lambda title, part: None)
    ds = opened(source, storage, storage_options)
    if len(ds) < 2:
        raise ValueError(f"{name_of(ds)} has {len(ds)} records, too few to order")
    progress("reading chunks and labels", 0.0)
    layout, found_label, num_labels = layout_of(ds, label)
    num_bytes = sum(shard.num_bytes for shard in ds.shards)
    each = num_bytes / len(ds)
    batch_size = min(batch_size, len(ds))
    chosen = dict(orders or default_orders(len(ds), len(ds.paths), len(layout.chunk_lengths), seed))
    probe = NoiseProbe()
    progress("how the orders mix", 0.1)
    exact = mean_of([mix_of(ps.Shuffled(seed + n), layout, 0, batch_size) for n in (1, 2, 3)])
    mixes = {name: mix_of(order, layout, 0, batch_size) for name, order in chosen.items()}
    plans = {
        name: plan_of(
            _beginning(order, layout), layout.chunk_lengths, batch_size, int(window_bytes / each)
        )
        for name, order in chosen.items()
    }
    times = _timed(ds, plans, rounds, seconds, probe, progress)
    rows: list[OrderRow] = []
    for name, order in chosen.items():
        progress(f"{name}: counting reads", 0.9)
        counts, part = _counted(ds, plans[name], times[name][0])
        mixing = compared(mixes[name], exact, len(ds.paths))
        plan = plans[name]
        window = plan.waiting_records if plan.by_chunks else batch_size
        epoch = {key: value / part for key, value in asdict(counts).items()}
        rows.append(
            OrderRow(
                name,
                order.spec(),
                mixes[name],
                mixing,
                plan.by_chunks,
                round(window * each),
                measured(times[name][1]),
                epoch["num_bytes"],
                epoch["reads"],
                epoch["seeks"],
                epoch["block_bytes"],
                tuple(disk.seconds(epoch["seeks"], epoch["block_bytes"]) for disk in disks),
                times[name][0],
                _path(order, layout),
            )
        )
    return ShuffleReport(
        name_of(ds), len(ds), num_bytes, len(ds.paths), len(layout.chunk_lengths), batch_size,
        found_label, num_labels, tuple(rows), tuple(disks), tuple(_sentences(rows, disks, found_label)),
        machine(ds.paths[0]), probe.noise(), time.monotonic() - begun,
    )  # fmt: skip


# -- measuring ------------------------------------------------------------------------------------


def _beginning(order: Any, layout: Layout) -> np.ndarray:
    length = min(order.length(layout.num_records), MOST_POSITIONS)
    return numbers_of(order, layout, 0, 0, length)


def _path(order: Any, layout: Layout, dots: int = 700) -> tuple[tuple[float, float], ...]:
    """Return the records at some positions, spread evenly with a fixed jitter."""
    records = _beginning(order, layout)
    jitter = np.random.default_rng(0).random(dots)
    places = np.unique(((np.arange(dots) + jitter) / dots * len(records)).astype(np.int64))
    length = order.length(layout.num_records)
    across = (places / length).round(4).tolist()
    up = (records[places] / layout.num_records).round(4).tolist()
    return tuple(zip(across, up, strict=True))


def _timed(
    ds: ps.Dataset,
    plans: Mapping[str, ReadingPlan],
    rounds: int,
    seconds: float,
    probe: NoiseProbe,
    progress: Progress,
) -> dict[str, tuple[int, list[float]]]:
    """Return, for each order, the number of records read, and the seconds of an epoch in each round. All rounds read as
    many records as the first round did in its share of the time."""
    share = seconds / (rounds + 1) / len(plans)
    found: dict[str, tuple[int, list[float]]] = {}
    for number in range(rounds):
        for place, (name, plan) in enumerate(plans.items()):
            progress(name, 0.2 + 0.7 * (number + place / len(plans)) / rounds)
            most = found[name][0] if number else len(plan.records)
            if not number:
                deliver(ds, plan, share / 4, most)  # warms caches and starts threads
            done = deliver(ds, plan, math.inf if number else share, most)
            part = done.read_records / len(ds)
            found.setdefault(name, (done.records, []))[1].append(done.seconds / part)
            probe.run()
    return found


def _counted(ds: ps.Dataset, plan: ReadingPlan, records: int) -> tuple[Any, float]:
    """Count the reads for this many records. Also return which fraction of an epoch the records are."""
    counted = counting(ds.files.storage)
    same = ds.reopened(storage=counted)
    _ = len(same), same.take([0])  # opens the dataset with its index, which is not counted
    counted.noted.reset()
    done = deliver(same, plan, math.inf, records)
    return counted.noted.counts, done.read_records / len(ds)


# -- what follows from the numbers ----------------------------------------------------------------


def _sentences(rows: Sequence[OrderRow], disks: Sequence[Disk], label: str | None) -> list[str]:
    """Sentences on the best order for each disk, then on the orders that mix badly, then advice on the files."""
    said = _best_orders(rows, disks)
    bad = [f"{row.name} ({_lacks(row)})" for row in rows if not row.mixing.is_near]
    if bad:
        said.append(f"Not mixed well: {'; '.join(bad)}.")
    stored = next((row for row in rows if row.spec.get("name") == "sequential"), None)
    off = (stored.mixing.label_distance or 0) if stored else 0
    if off > 1.5:
        said.append(
            f"In the files, records with the same {label} are adjacent ({off:.1f} times as uneven "
            "as by chance). If they were rewritten in random order (penstock convert --shuffle 1), "
            "chunks would be mixed, and so would orders that read whole chunks."
        )
    return said


def _best_orders(rows: Sequence[OrderRow], disks: Sequence[Disk]) -> list[str]:
    good = [row for row in rows if row.mixing.is_exact]
    near = [row for row in rows if row.mixing.is_near and not row.mixing.is_exact]
    if not good:
        return ["None of these orders mixes within a tenth of an exact shuffle."]
    return [
        f"{disk.name[0].upper()}{disk.name[1:]}: {_best_order(good, near, number)}."
        for number, disk in enumerate(disks)
    ]


def _best_order(good: Sequence[OrderRow], near: Sequence[OrderRow], disk: int) -> str:
    """Return a sentence on the quickest exact order, and on a much quicker order in `near`."""

    def needed(row: OrderRow) -> float:
        return epoch_seconds(row, disk)

    best = min(good, key=needed)
    line = f"{best.name}, {in_words(needed(best))} an epoch"
    worst = max(good, key=needed)
    if needed(worst) > 2 * needed(best):
        line += f"; {worst.name} mixes no better and takes {in_words(needed(worst))}"
    quick = min(near, key=needed, default=best)
    if 2 * needed(quick) < needed(best):
        line += f"; {quick.name} takes {in_words(needed(quick))}, but {_lacks(quick)}"
    return line


def epoch_seconds(row: OrderRow, disk: int) -> float:
    """Return the time of an epoch from a disk: the longer of reading and decoding, which overlap."""
    return max(row.disk_seconds[disk], row.seconds.median)


def _lacks(row: OrderRow) -> str:
    mixing = row.mixing
    factors = {
        "records hardly move": 1 / max(mixing.moved, 1e-6) if mixing.moved < 0.1 else 0,
        f"records move {mixing.moved:.2f} as far": 1 / max(mixing.moved, 1e-6),
        f"labels are {mixing.label_distance or 0:.1f} times as uneven": mixing.label_distance or 0,
        f"records meet again {mixing.again or 0:,.1f} times as often": mixing.again or 0,
    }
    worst = max(factors, key=lambda words: factors[words])
    if factors[worst] > 1.1:
        return worst
    return f"a batch comes from {mixing.chunks:.2f} as many chunks"
