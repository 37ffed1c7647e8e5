"""The argument `buckets=` of `ps.Loader`: the lengths of the buckets by column, and the batch size of each bucket.

A column has a list of lengths, or a dict from each length to the number of records in a batch of that bucket. Buckets
are the same for all columns, so one dict is enough, and two dicts have to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.limits import checked_count


class BucketSizes(NamedTuple):
    lengths: dict[str, list[int]]
    """The maximum lengths of the buckets by column, ascending."""
    batch_sizes: list[int] | None
    """The records in a batch of each bucket, on each rank; None: `batch_size` of the loader for all of them."""


def bucket_sizes(buckets: Any) -> BucketSizes | None:
    """Check `buckets=`. None means that there are no buckets.

    Raises:
        TypeError, ValueError: lengths are not ascending numbers, columns have different numbers of lengths, or dicts of two
            columns differ in the batch size of a bucket.
    """
    if buckets is None:
        return None
    if not isinstance(buckets, Mapping) or not buckets:
        raise TypeError(f"buckets is a dict, {{column: [sizes]}}, not {buckets!r}")
    lengths: dict[str, list[int]] = {}
    by_column: dict[str, list[int]] = {}
    for name, edges in buckets.items():
        found = [checked_count(f"a bucket of {name!r}", edge, 1) for edge in edges]
        if isinstance(edges, Mapping):
            named = dict(sorted(zip(found, edges.values(), strict=True)))
            found = list(named)
            by_column[name] = [
                checked_count(f"the batch size of bucket {length} of {name!r}", size, 1)
                for length, size in named.items()
            ]
        if not found or sorted(set(found)) != found:
            raise ValueError(f"buckets of {name!r} must be ascending sizes, not {list(edges)}")
        lengths[name] = found
    if len({len(edges) for edges in lengths.values()}) > 1:
        raise ValueError("buckets= needs the same number of sizes for every column")
    return BucketSizes(lengths, _agreed(by_column))


def _agreed(by_column: Mapping[str, list[int]]) -> list[int] | None:
    """The batch sizes that all columns with a dict give."""
    found: tuple[str, list[int]] | None = None
    for name, sizes in by_column.items():
        if found is not None and found[1] != sizes:
            raise ValueError(
                f"buckets= has the batch sizes {found[1]} for {found[0]!r}, and {sizes} for {name!r}; a bucket has one"
                " batch size for all columns, so give a dict for one column, and lists for the others"
            )
        found = name, sizes
    return None if found is None else found[1]


def largest_batch(batch_size: Any, sizes: BucketSizes | None) -> int:
    """The records in the largest batch of a loader: `batch_size`, or the largest of the buckets.

    Raises:
        TypeError, ValueError: neither `batch_size` nor `buckets` gives it, or both do.
    """
    by_bucket = None if sizes is None else sizes.batch_sizes
    if by_bucket is None and batch_size is None:
        raise TypeError(
            "batch_size is missing: the records of a batch, such as Loader(data, 32), or of the batches of each bucket,"
            ' such as buckets={"tokens": {128: 64, 512: 16}}'
        )
    if by_bucket is None:
        return checked_count("batch_size", batch_size, 1)
    if batch_size is not None:
        raise ValueError(
            f"buckets= gives each bucket its batch size ({', '.join(map(str, by_bucket))}), so leave out batch_size"
            f" ({batch_size})"
        )
    return max(by_bucket)
