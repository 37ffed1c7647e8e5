"""`split` divides a dataset into disjoint parts, such as train and validation."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, islice
from typing import Any

import numpy as np

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import of_one_call, opened
from penstock.orders.keys import Draw, checked_seed, permuted
from penstock.storage.base import Storage
from penstock.storage.places import storage_of
from penstock.verbs.choose._keys import (
    check_unchanged,
    draws,
    groups,
    keyed,
    numbered,
)
from penstock.verbs.convert.choice import Choice
from penstock.verbs.convert.convert import How, write_chosen
from penstock.verbs.convert.parts import Cut, Piece
from penstock.verbs.progress import Progress
from penstock.verbs.write.names import with_notes_of_names

_ROUNDING = 1e-9
"""Shares such as thirds need not add up to exactly 1."""


def split(
    source: Any,
    shares: Mapping[str, float],
    *,
    by: str | Sequence[str] | None = None,
    seed: int = 0,
    stratify: str | None = None,
    threads: int | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, Dataset]:
    """Divide a dataset into parts that have no record in common. No data is copied.

    The same call on the same records gives the same parts, on every machine and in every version of penstock.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        shares: the part of the records that each split gets, {name: share}. If the shares add up to less than 1,
            the rest of the records is in no split, and a warning says so.
        by: a column, or a path into a struct or JSON, such as `json.user`, or a list of these. A hash of a record's values in them determines its split. So records with
            equal values are in the same split, and stay there when other records are added, but the shares are only
            approximate. None: the records are drawn at random, and the shares are exact.
        seed: another seed makes other splits.
        stratify: a column, or such a path. The records of each of its values are divided by the shares, rounded up or down so that the
            sums are right, too. Not together with `by`.
        threads: the number of threads; None for all cores.
        storage, storage_options: as for `open`.

    Returns:
        A Dataset for each split, with the records in the order of the files.

    Raises:
        ValueError: a share is negative or zero, or the shares add up to more than 1.
        SchemaError: a column is unknown.
        UnsupportedError: the records cannot be numbered, because of damage or `damage="stop"`.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": list(range(10))}, "ten.tfrecord", overwrite=True)
        >>> parts = ps.split("ten.tfrecord", {"train": 0.8, "val": 0.2})
        >>> {name: len(part) for name, part in parts.items()}
        {'train': 8, 'val': 2}
    """
    dataset = opened(source, storage, storage_options)
    found, dataset = _numbers(dataset, source, shares, by, seed, stratify, threads)[:2]
    return {name: dataset.subset(part) for name, part in found.items()}


def write_splits(
    source: Any,
    into: str | os.PathLike[str],
    shares: Mapping[str, float],
    *,
    by: str | Sequence[str] | None = None,
    seed: int = 0,
    stratify: str | None = None,
    columns: Sequence[str] | None = None,
    prove: bool = False,
    format: str | None = None,
    compression: str | None = None,
    num_shards: int | None = None,
    shard_records: int | None = None,
    index: bool | str = True,
    overwrite: bool = False,
    exact: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    write_options: Mapping[str, Any] | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> dict[str, Summary]:
    """Divide a dataset as `split` does, and write each split to separate files.

    No file gets its name until all are complete. After a kill, the same call continues.

    Args:
        source: as for `open`, or a Dataset.
        into: the name of the files, with `{split}` where the name of the split goes, such as
            `"out/{split}.tfrecord"` or `"out/{split}-{shard}.tfrecord"`. `penstock.open("out", split="train")`
            opens the files of one split.
        shares: as for `split`.
        by: as for `split`.
        seed: as for `split`.
        stratify: as for `split`.
        num_shards: the number of files of each split.
        shard_records: the number of records of each file, except the last one of a split.
        columns: the columns to write, in this order; None for all. Columns that decide need not be among them.
        prove, format, compression, index, overwrite, exact, threads, progress, write_options, format_options: as
            for `convert`.

    Returns:
        A Summary for each split.

    Raises:
        ValueError: `into` has no `{split}`, or the errors of `split`.
        FileExistsError: a target exists and `overwrite` is False.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": list(range(10))}, "ten.tfrecord", overwrite=True)
        >>> made = ps.write_splits(
        ...     "ten.tfrecord",
        ...     "{split}-{shard}.tfrecord",
        ...     {"train": 0.8, "val": 0.2},
        ...     overwrite=True,
        ... )
        >>> made["val"].paths, made["val"].num_records
        (('val-00000.tfrecord',), 2)
    """
    pattern = os.fspath(into)
    if "{split}" not in pattern:
        raise ValueError(f"{pattern} would be the file of every split; put {{split}} in the name")
    for name in shares:
        if "/" in name or "\\" in name or "{" in name or name.startswith("."):
            raise ValueError(f"the name of the split {name!r} cannot be a part of a file's name")
    source = of_one_call(source)
    dataset = opened(source, storage, storage_options)
    found, dataset, source = _numbers(dataset, source, shares, by, seed, stratify, threads)
    pattern = pattern.replace("{shard}", "{shard:05d}")
    pieces = [Piece(pattern.replace("{split}", name), len(part)) for name, part in found.items()]
    how = How(
        columns=columns,
        prove=prove,
        format=format,
        compression=compression,
        num_shards=num_shards,
        shard_records=shard_records,
        index=index,
        overwrite=overwrite,
        exact=exact,
        threads=threads,
        progress=progress,
        write_options=write_options,
        format_options=format_options,
        storage=storage,
        storage_options=storage_options,
        target_storage=target_storage,
        target_storage_options=target_storage_options,
    )
    numbers = np.concatenate(list(found.values()))
    whole = write_chosen(source, pattern, Choice(numbers=numbers), how, pieces)
    check_unchanged(dataset)
    cut, place = Cut(num_shards, shard_records), storage_of(pattern, None, target_storage_options)
    made = _by_piece(whole, pieces, cut, target_storage or place)
    return dict(zip(shares, made, strict=True))


def _by_piece(
    whole: Summary, pieces: Sequence[Piece], cut: Cut, place: Storage
) -> Iterator[Summary]:
    """Yield the summary of each piece of a job."""
    paths = iter(whole.paths)
    for piece in pieces:
        files = tuple(islice(paths, len(cut.edges(piece.num_records)) - 1))
        made = Summary(files, piece.num_records, sum(map(place.num_bytes, files)), whole.notes)
        yield with_notes_of_names(made, piece.target)


def _numbers(
    dataset: Dataset,
    source: Any,
    shares: Mapping[str, float],
    by: str | Sequence[str] | None,
    seed: int,
    stratify: str | None,
    threads: int | None,
) -> tuple[dict[str, np.ndarray], Dataset, Any]:
    """Return the numbers of the records of each split, ascending, and the results of `numbered`."""
    exact = _checked_shares(shares)
    seed = checked_seed(seed)
    if by is not None and stratify is not None:
        raise ValueError("stratify= and by= cannot be combined; use one of them")
    asked = stratify if by is None else by
    option = "stratify" if by is None else "by"
    columns = [] if asked is None else keyed(dataset, asked, option)[1]
    dataset, source = numbered(dataset, source)
    compared = dataset if asked is None else keyed(dataset, asked, option)[0]
    if by is not None:
        which = _by_hash(compared, exact, columns, seed, threads)
    elif stratify is not None:
        which = _stratified(compared, exact, columns[0], seed, threads)
    else:
        which = _at_random(len(dataset), exact, seed)
    _warn_of_rest(which, len(exact))
    return {name: np.flatnonzero(which == n) for n, name in enumerate(shares)}, dataset, source


def _checked_shares(shares: Mapping[str, float]) -> list[Fraction]:
    """Return the shares as exact numbers: 0.1 is a tenth."""
    if not isinstance(shares, Mapping):
        raise TypeError(
            f"shares= is a dict, such as {{'train': 0.9, 'val': 0.1}}, not {type(shares).__name__}"
        )
    if not shares:
        raise ValueError(
            "shares= names no split; it takes a dict such as {'train': 0.9, 'val': 0.1}"
        )
    for name, share in shares.items():
        if not name or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  users may pass anything
            raise ValueError(
                f"the name of a split must be a string that is not empty, not {name!r}"
            )
        if isinstance(share, bool) or not 0 < share <= 1:
            raise ValueError(f"the share of {name} must be above 0 and at most 1, not {share!r}")
    exact = [Fraction(repr(float(share))) for share in shares.values()]
    total = sum(exact)
    if total > 1 + _ROUNDING:
        raise ValueError(f"the shares add up to {float(total):g}, which is more than 1")
    return exact


def _leaves_none_out(shares: Sequence[Fraction]) -> bool:
    return sum(shares) > 1 - _ROUNDING


def sizes_of(total: int, shares: Sequence[Fraction]) -> list[int]:
    """Return how many of `total` records each share gets, by the largest remainder method."""
    rest = [] if _leaves_none_out(shares) else [1 - sum(shares)]
    wanted = [total * share for share in (*shares, *rest)]
    sizes = [int(one) for one in wanted]
    fullest = sorted(range(len(wanted)), key=lambda n: (sizes[n] - wanted[n], n))
    for n in fullest[: total - sum(sizes)]:
        sizes[n] += 1
    return sizes[: len(shares)]


def _at_random(total: int, shares: Sequence[Fraction], seed: int) -> np.ndarray:
    """Return the number of each record's split, int16. A record in no split gets the number of splits."""
    which = np.full(total, len(shares), np.int16)
    order = permuted(total, seed, 0, Draw.SPLITS, 0, total)
    start = 0
    for n, size in enumerate(sizes_of(total, shares)):
        which[order[start : start + size]] = n
        start += size
    return which


def _stratified(
    dataset: Dataset, shares: Sequence[Fraction], column: str, seed: int, threads: int | None
) -> np.ndarray:
    found = [part.group for part in groups(dataset, [column], threads)]
    group = np.concatenate([np.zeros(0, np.int64), *found])
    total = len(group)
    order = permuted(total, seed, 0, Draw.SPLITS, 0, total)
    # Group after group, with the records of each group in random order.
    order = order[np.argsort(group[order], kind="stable")]
    which = np.full(total, len(shares), np.int16)
    counts = np.bincount(group).tolist()
    start = 0
    for count, sizes in zip(counts, _sizes_of_groups(counts, shares), strict=True):
        at = start
        for n, size in enumerate(sizes):
            which[order[at : at + size]] = n
            at += size
        start += count
    return which


def _sizes_of_groups(counts: Sequence[int], shares: Sequence[Fraction]) -> Iterator[list[int]]:
    """Yield how many records of each group every share gets: its part, rounded down or up. What remains goes to the
    shares that have got too little of all groups so far, so that the sums are right, too, if groups are small."""
    rest = [] if _leaves_none_out(shares) else [1 - sum(shares)]
    parts = [*shares, *rest]
    whole = math.lcm(*(part.denominator for part in parts))
    weights = [int(part * whole) for part in parts]
    owed = [0] * len(parts)
    for count in counts:
        sizes: list[int] = []
        for n, weight in enumerate(weights):
            size, remainder = divmod(count * weight, whole)
            sizes.append(size)
            owed[n] += remainder
        split = [n for n, weight in enumerate(weights) if count * weight % whole]
        for n in sorted(split, key=lambda n: (-owed[n], n))[: count - sum(sizes)]:
            sizes[n] += 1
            owed[n] -= whole
        yield sizes[: len(shares)]


def _by_hash(
    dataset: Dataset,
    shares: Sequence[Fraction],
    columns: list[str],
    seed: int,
    threads: int | None,
) -> np.ndarray:
    """Return the split of each record, chosen by a 64-bit hash of its values."""
    ends = [min(int(end * 2**64), 2**64) for end in accumulate(shares)]
    if _leaves_none_out(shares):
        ends[-1] = 2**64
    lasts = [np.uint64(end - 1) for end in ends]

    def split_of(numbers: np.ndarray) -> np.ndarray:
        # For a few splits this is several times faster than a binary search.
        which = np.zeros(len(numbers), np.int16)
        for last in lasts:
            which += numbers > last
        return which

    found = map(split_of, draws(dataset, columns, seed, threads))
    return np.concatenate([np.zeros(0, np.int16), *found])


def _warn_of_rest(which: np.ndarray, num_splits: int) -> None:
    rest = int(np.count_nonzero(which == num_splits))
    if rest:
        message = f"{rest} of {len(which)} records are in no split, since the shares add up to less than 1"
        warnings.warn(message, stacklevel=4)
