"""`rank="auto"`: which part of the work this process has, from the launcher that started it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple


class _Default(int):
    """The default of an argument, which differs from the same number given by the caller."""


ALONE = _Default(0)
"""The default of `rank`."""


class Place(NamedTuple):
    """The part of a process in the work of several."""

    rank: int
    world_size: int
    launcher: str
    """What it is known from, such as "torchrun"."""


_VARIABLES = (
    # launcher, rank, world size
    ("torchrun", "RANK", "WORLD_SIZE"),
    # srun sets these in each task. A batch script has SLURM_NTASKS as well, and is one process.
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE"),
)


def rank_and_world_size(rank: Any, world_size: int) -> tuple[Any, int]:
    """Return the `rank` and `world_size` of a loader. Warn if they are missing in one of several processes.

    Raises:
        TypeError: `rank` is a text other than "auto".
        ValueError: there is a world_size with "auto".
    """
    if not isinstance(rank, str):
        if rank is ALONE and world_size == 1:
            _warn_if_forgotten()
        return rank, world_size
    if rank != "auto":
        raise TypeError(f'rank is a whole number, not {rank!r}; or "auto"')
    if world_size != 1:
        raise ValueError('rank="auto" finds world_size, too; leave it out')
    place = found()
    return (0, 1) if place is None else (place.rank, place.world_size)


def found() -> Place | None:
    """Return the place of this process: as torch or JAX know it, if they are set up, or else from the variables that a
    launcher sets. None if it runs alone.

    Raises:
        ValueError: a launcher's variables are not a rank and the number of ranks.
    """
    for from_library in (_of_torch, _of_jax):
        place = from_library()
        if place is not None:
            return place
    for launcher, rank, world_size in _VARIABLES:
        if rank in os.environ and world_size in os.environ:
            return _of_variables(launcher, rank, world_size)
    return None


def _of_variables(launcher: str, rank: str, world_size: str) -> Place:
    given = os.environ[rank], os.environ[world_size]
    if not all(one.isascii() and one.isdigit() for one in given) or int(given[0]) >= int(given[1]):
        message = f"{rank}={given[0]} and {world_size}={given[1]} of {launcher} are not a rank and the number of ranks"
        raise ValueError(f"{message}; give rank= and world_size=")
    return Place(int(given[0]), int(given[1]), launcher)


def _of_torch() -> Place | None:
    torch: Any = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return None
    return Place(torch.get_rank(), torch.get_world_size(), "torch.distributed")


def _of_jax() -> Place | None:
    jax: Any = sys.modules.get("jax")
    # Asking for the number of processes would start JAX's backend, before the program may have set it up.
    is_set_up: Callable[[], bool] | None = getattr(
        getattr(jax, "distributed", None), "is_initialized", None
    )
    if is_set_up is None or not is_set_up():
        return None
    return Place(jax.process_index(), jax.process_count(), "jax.distributed")


def _warn_if_forgotten() -> None:
    try:
        place = found()
    except ValueError:
        return
    if place is not None and place.world_size > 1:
        warnings.warn(
            f"this is process {place.rank} of {place.world_size} ({place.launcher}), and its loader reads all records,"
            ' as those of the others do: rank="auto" divides them; rank=0, world_size=1 says that this is meant',
            stacklevel=4,
        )
