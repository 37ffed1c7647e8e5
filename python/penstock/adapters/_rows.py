"""Which rows of a global array the devices of each process need, and whether the ranks of the loaders fit them.

A sharding divides axis 0, the records, into equal parts. Processes whose devices need the same parts must have the same
records, so they are one rank. This is so if an axis of the mesh that divides something else, such as the weights of the
model or a sequence, or that divides nothing, lies across the processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from penstock.errors import SchemaError, StateError


class Rows(NamedTuple):
    """How a sharding divides the rows of a global array."""

    num_parts: int
    """The number of equal parts."""
    ranks: dict[int, int]
    """The rank of each process: those with the same rank need the same parts."""
    world_size: int

    def misfit(self, lengths: set[int]) -> int | None:
        """The largest number of records on each rank that cannot be divided into the parts, or None."""
        return next(
            (n for n in sorted(lengths, reverse=True) if n * self.world_size % self.num_parts), None
        )


def checked(sharding: Any) -> Sharding:
    """Return the sharding, or raise TypeError if it is something else."""
    if isinstance(sharding, Sharding):
        return sharding
    wants = 'NamedSharding(mesh, PartitionSpec("data")), of jax.sharding'
    if isinstance(sharding, Mapping):
        wants += ", for all columns; columns with fewer axes use only its first entries"
    name = type(sharding).__name__
    raise TypeError(f"sharding= takes a sharding such as {wants}; not a {name}")


def cut(sharding: Sharding, num_axes: int) -> Sharding:
    """The sharding for an array of some axes: entries of a PartitionSpec for further axes are left out."""
    if not isinstance(sharding, NamedSharding) or len(sharding.spec) <= num_axes:
        return sharding
    spec = PartitionSpec(*tuple(sharding.spec)[:num_axes])
    return NamedSharding(sharding.mesh, spec, memory_kind=sharding.memory_kind)


def rows_of(sharding: Sharding) -> Rows | None:
    """How a sharding divides the rows. None if it is on this process alone and only JAX knows.

    Raises:
        ValueError: the rows that two processes need overlap, but are not the same; or a process has no device in the
            sharding.
    """
    num_devices = len(sharding.device_set)  # divisible by the number of parts
    try:
        places = cut(sharding, 1).devices_indices_map((num_devices,))
    except ValueError:  # a sharding for arrays of a certain number of axes
        if sharding.is_fully_addressable:
            return None
        raise
    parts: dict[int, set[int]] = {}
    for device, index in places.items():
        parts.setdefault(device.process_index, set()).add(index[0].start or 0)
    every = set[int]().union(*parts.values())
    if sharding.is_fully_addressable:
        return Rows(len(every), {jax.process_index(): 0}, 1)
    _check_parts(parts, every)
    groups = sorted({min(part) for part in parts.values()})
    ranks = {process: groups.index(min(part)) for process, part in parts.items()}
    return Rows(len(every), ranks, len(groups))


def _check_parts(parts: Mapping[int, set[int]], every: set[int]) -> None:
    absent = set(range(jax.process_count())) - parts.keys()
    if absent:
        raise ValueError(
            f"the sharding has no device of process {min(absent)}: make its mesh of the devices of all processes,"
            " jax.devices(), or of one, jax.local_devices()"
        )
    groups = {frozenset(part) for part in parts.values()}
    if len({len(group) for group in groups}) > 1 or sum(map(len, groups)) != len(every):
        raise ValueError(
            "the rows that the devices of some processes need overlap, or are not equally many, so no rank fits them: order"
            " the devices of the mesh so that two processes need the same rows or none in common"
        )


@dataclass(frozen=True)
class Facts:
    """What the loader of a process reads."""

    process: int
    rank: int
    world_size: int
    is_default: bool
    """Neither rank= nor world_size= was passed."""
    digest: tuple[int, ...]
    """Of the data, their order, and the place where the epoch begins."""
    misfit: int
    """A number of records in a batch that does not fit the sharding, or 0."""


def check_ranks(rows: Rows, facts: Sequence[Facts], found: str) -> None:
    """Raise the same error in all processes if their loaders do not have the records that the sharding needs.

    A loader of one rank has all records of its data. So processes with such loaders must have other data, unless their
    devices need the same rows.
    """
    for one in facts:
        needed = rows.ranks[one.process]
        is_alone = one.world_size == 1 and not one.is_default
        if (one.rank, one.world_size) != (needed, rows.world_size) and not is_alone:
            raise _other_rank(rows, one)
    if rows.world_size > 1 and len({one.world_size for one in facts}) > 1:
        raise _other_rank(rows, next(one for one in facts if one.world_size == 1))
    if all(one.world_size == rows.world_size for one in facts):
        alike = [facts]
    else:
        alike = [
            [one for one in facts if rows.ranks[one.process] == rank]
            for rank in range(rows.world_size)
        ]
    if any(len({one.digest for one in group}) > 1 for group in alike):
        raise StateError(
            "the processes read other data, or in another order, or begin at other positions, so records would come twice"
            " or not at all",
            found=found,
            hint="the same files, arguments, seeds and states in all processes that share their records. Of damaged files,"
            " a host whose index is from before the damage may count other records: repair them, or share the folder of"
            " index=",
        )
    if len({group[0].digest for group in alike}) < len(alike):
        raise StateError(
            "each process reads all records, and they have the same, so each record would come more than once",
            expected=f"{rows.world_size} ranks, or other data in each process",
            found=found,
            hint='rank="auto", which divides the records. If each process has files of its own that only look the same,'
            " give their orders different seeds",
        )


def _other_rank(rows: Rows, one: Facts) -> StateError:
    needed = rows.ranks[one.process]
    hint = 'rank="auto", which takes both from the sharding'
    if rows.world_size == 1:
        hint += ", or rank=0, world_size=1: the devices of all processes need the same rows"
    elif one.is_default:
        hint += "; or rank=0, world_size=1 if each process has files of its own"
    elif rows.world_size < len(rows.ranks):
        hint += ": processes whose devices need the same rows have the same rank"
    return StateError(
        f"the rank of process {one.process} does not fit the sharding",
        expected=f"rank {needed} of {rows.world_size}",
        found=f"rank {one.rank} of {one.world_size}",
        hint=hint,
    )


def check_lengths(rows: Rows, facts: Sequence[Facts], batch_sizes: set[int]) -> None:
    """Raise the same error in all processes if a batch of one of them cannot be divided over the devices."""
    for one in facts:
        if one.misfit:
            raise does_not_fit(rows, one.misfit, batch_sizes)


def does_not_fit(rows: Rows, length: int, batch_sizes: set[int]) -> SchemaError:
    """The error for a batch of some records on each rank. `batch_sizes`: of batches that are full."""
    each = rows.num_parts // rows.world_size
    on_ranks = f" on each of {rows.world_size} ranks" if rows.world_size > 1 else ""
    if any(size % each for size in batch_sizes):
        hint = f"a batch_size that is a multiple of {each}"
    else:
        hint = (
            'drop_last=True or uneven="pad" of Loader for the last batch; uneven="pad" if damaged records are skipped; a'
            f" map that returns a multiple of {each} records"
        )
    return SchemaError(
        f"a batch of {length} records{on_ranks} does not fit the sharding, which divides the records of"
        f" {'a rank' if on_ranks else 'a batch'} into {each} equal parts",
        hint=hint,
    )
