"""`rank="auto"`: finds the rank of this process and the number of ranks from the program that launched it."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

RankFrom = Literal["auto", "default", "argument"]
"""Where a loader has its rank from: rank="auto", no argument at all, or the numbers that were passed."""


class _Default(int):
    """The default value of an argument, which can be distinguished from the same number passed by the caller."""


ALONE = _Default(0)
"""The default of `rank`."""


class Place(NamedTuple):
    """The rank of a process among the processes of a job."""

    rank: int
    world_size: int
    launcher: str
    """The launcher or library that reports the rank, such as "torchrun"."""


_VARIABLES = (
    # launcher, rank, world size
    ("torchrun", "RANK", "WORLD_SIZE"),
    # srun sets these in each task. SLURM_NTASKS is also set in a batch script, which is only one process.
    ("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPI", "PMI_RANK", "PMI_SIZE"),
)


def rank_from(rank: Any, world_size: int) -> RankFrom:
    """Where the rank of a loader with these arguments comes from."""
    if isinstance(rank, str):
        return "auto"
    return "default" if rank is ALONE and world_size == 1 else "argument"


class Watch:
    """Warns once if the processes of a job are set up only after their loaders, which then read all records each."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    def look(self) -> None:
        """Called when an epoch begins."""
        place = _of_libraries() if self._is_on else None
        if place is not None and place.world_size > 1:
            self._is_on = False
            warnings.warn(
                f"this is process {place.rank} of {place.world_size} ({place.launcher}), and each reads all records,"
                ' because the loader was made before the processes were set up: make it afterwards, with rank="auto",'
                " in Lightning in the hooks train_dataloader() and val_dataloader(); or give rank=0, world_size=1 if each"
                " process needs all records",
                stacklevel=5,
            )


def rank_and_world_size(rank: Any, world_size: int) -> tuple[Any, int, Watch]:
    """Return the `rank` and `world_size` of a loader, and the watch over its later epochs. Warn if they are not given,
    but this is one of several processes.

    Raises:
        TypeError: `rank` is a string other than "auto".
        ValueError: `rank` is "auto", and world_size is given.
    """
    if not isinstance(rank, str):
        is_forgotten = rank_from(rank, world_size) == "default"
        has_warned = is_forgotten and _warn_if_forgotten()
        return rank, world_size, Watch(is_on=is_forgotten and not has_warned)
    if rank != "auto":
        raise TypeError(f'rank is a whole number, not {rank!r}; "auto" is allowed, too')
    if world_size != 1:
        raise ValueError('rank="auto" also finds world_size=; leave it out')
    place = found()
    if place is None:
        return 0, 1, Watch(is_on=True)
    return place.rank, place.world_size, Watch(is_on=place.world_size == 1)


def found() -> Place | None:
    """Return the rank of this process and the number of ranks, from Ray Train if it runs this process, from torch or
    JAX if they are initialized for several processes, else from the environment variables of a launcher. None if the
    process runs alone.

    Raises:
        ValueError: the variables of a launcher are not valid numbers.
    """
    place = _of_libraries()
    if place is not None:
        return place
    for launcher, rank, world_size in _VARIABLES:
        if rank in os.environ and world_size in os.environ:
            return _of_variables(launcher, rank, world_size)
    return None


def _of_libraries() -> Place | None:
    places = (from_library() for from_library in (_of_ray_train, _of_torch, _of_jax))
    return next((place for place in places if place is not None), None)


def _of_variables(launcher: str, rank: str, world_size: str) -> Place:
    given = os.environ[rank], os.environ[world_size]
    if not all(one.isascii() and one.isdigit() for one in given) or int(given[0]) >= int(given[1]):
        message = (
            f"{launcher} has set {rank}={given[0]} and {world_size}={given[1]}, which are not valid"
        )
        raise ValueError(f"{message}; give rank= and world_size=")
    return Place(int(given[0]), int(given[1]), launcher)


def _of_ray_train() -> Place | None:
    # First, because a worker of Ray inherits the variables of srun or mpirun if that started Ray on its machine.
    train: Any = sys.modules.get("ray.train.v2.api.train_fn_utils")
    if train is None:
        return None
    try:
        context = train.get_context()
    except (RuntimeError, DeprecationWarning):  # not a worker of Ray Train; a trial of Ray Tune
        return None
    return Place(context.get_world_rank(), context.get_world_size(), "Ray Train")


def _of_torch() -> Place | None:
    torch: Any = sys.modules.get("torch.distributed")
    if torch is None or not torch.is_available() or not torch.is_initialized():
        return None
    return Place(torch.get_rank(), torch.get_world_size(), "torch.distributed")


def _of_jax() -> Place | None:
    jax: Any = sys.modules.get("jax")
    # jax.process_count() would start JAX's backend, perhaps before the program has configured it.
    is_set_up: Callable[[], bool] | None = getattr(
        getattr(jax, "distributed", None), "is_initialized", None
    )
    if is_set_up is None or not is_set_up():
        return None
    return Place(jax.process_index(), jax.process_count(), "jax.distributed")


def _warn_if_forgotten() -> bool:
    """Warn if this is one of several processes, and return whether it is."""
    try:
        place = found()
    except ValueError:
        return False
    if place is None or place.world_size == 1:
        return False
    warnings.warn(
        f"this is process {place.rank} of {place.world_size} ({place.launcher}), and each reads all records: pass"
        ' rank="auto" to divide the records, or rank=0, world_size=1 if each process needs all of them',
        stacklevel=5,
    )
    return True
