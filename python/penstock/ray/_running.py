"""The tasks of one call on a cluster of Ray: which wait, which run, and which are run again."""

from __future__ import annotations

import io
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from typing import Any

import pyarrow as pa
import ray
from ray import cloudpickle, exceptions

from penstock.engine.cluster import Failed
from penstock.engine.pipeline import use_cores
from penstock.errors import PenstockError, StorageError, UnsupportedError

_MOST_WAITING = 1000
"""Groups of tasks that Ray knows of at a time. More make its driver slow."""
_GROUP_SECONDS = 1.0
_HINT = "install penstock, and all that the task uses, on all machines of the cluster"
_MOST_IN_GROUP = 256
_FIRST_GROUP = 16
"""The most tasks of the first groups, because the first results may be those of unusually small tasks."""
_GROUPS_EACH = 4
"""The tasks that are left are divided into at least so many groups for each machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """What all tasks of a call have in common."""

    version: str
    folder: str | None
    """The folder from which relative paths are meant; None if there are none."""
    cores: int
    function: Callable[[Any], Any]


class Running:
    """Runs tasks. Small ones are run in groups, because Ray takes about a millisecond for each piece of work.

    A group is tried once. If its worker dies, or a store does not answer, then its tasks, or those that failed, are run
    alone, as often as `retries` allows. So a task of which workers die is found, and the others of its group are done.

    Args:
        place: a packed `Place` that Ray stores.
        options: options of Ray for the tasks.
        at_once: about how many tasks the cluster runs at a time.
    """

    def __init__(
        self,
        place: Any,
        tasks: Sequence[Any],
        options: dict[str, Any],
        retries: int,
        at_once: int,
    ) -> None:
        remote: Any = ray.remote(_run_packed)
        self._alone = partial(remote.options(**options).remote, place)
        self._grouped = partial(remote.options(**{**options, "max_retries": 0}).remote, place)
        self._retries = retries
        self._at_once = at_once
        self._num_left = len(tasks)
        self._left = iter(enumerate(tasks))
        self._again: deque[tuple[int, Any]] = deque()
        self._waiting: dict[Any, list[tuple[int, Any]]] = {}
        self._size = 0
        """How many tasks a group has; 0 until the first result shows how long one takes."""

    def results(self) -> Generator[tuple[int, Any]]:
        """Yield the number and the result of each task, as they are done. When this is closed, running tasks are
        cancelled."""
        try:
            while self._submit():
                done, _ = ray.wait(list(self._waiting), num_returns=1)
                for ref in done:
                    group = self._waiting.pop(ref)
                    yield from self._done(group, self._found(ref, len(group) == 1))
        finally:
            for ref in self._waiting:
                ray.cancel(ref, force=True)

    def _submit(self) -> bool:
        """Give Ray as many groups as it may know of. False if none is left."""
        while len(self._waiting) < (_MOST_WAITING if self._size else 2 * self._at_once):
            group = [self._again.popleft()] if self._again else self._next_group()
            if not group:
                break
            run = self._alone if len(group) == 1 else self._grouped
            self._waiting[run([packed(task) for _, task in group])] = group
        return bool(self._waiting)

    def _next_group(self) -> list[tuple[int, Any]]:
        """The next tasks: not so many that in the end few machines have work."""
        share = self._num_left // (_GROUPS_EACH * self._at_once)
        group = list(islice(self._left, max(1, min(self._size, share))))
        self._num_left -= len(group)
        return group

    def _found(self, ref: Any, is_alone: bool) -> list[Any] | None:
        """The results of a group; None if they are lost."""
        try:
            results, seconds = pickle.loads(ray.get(ref))  # noqa: S301  Ray does the same
        except exceptions.RayError as error:
            return [failed(error, self._retries)] if is_alone else None
        wanted = int(_GROUP_SECONDS * len(results) / max(seconds, 1e-6))
        self._size = max(1, min(wanted, max(4 * self._size, _FIRST_GROUP), _MOST_IN_GROUP))
        return results

    def _done(
        self, group: list[tuple[int, Any]], results: list[Any] | None
    ) -> Generator[tuple[int, Any]]:
        if results is None:
            self._size = 1
            self._again.extend(group)
            return
        for (number, task), result in zip(group, results, strict=True):
            if isinstance(result, _Again):
                self._again.append((number, task))
            else:
                yield number, result


class _Pickler(cloudpickle.CloudPickler):  # pyright: ignore[reportUntypedBaseClass, reportPrivateImportUsage]
    """Pickles functions by value as Ray does, but schemas as pyarrow does: Ray's way loses the types of penstock."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, pa.Schema):
            return obj.__reduce__()
        return super().reducer_override(obj)


def packed(value: Any) -> bytes:
    """A value as bytes, which any Python with penstock can load."""
    data = io.BytesIO()
    _Pickler(data, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return data.getvalue()


def failed(error: Any, retries: int) -> Failed:
    """What an error of Ray says of a task that was tried `retries` times more."""
    if isinstance(error, exceptions.RayTaskError):
        cause: Any = error.cause
        return Failed(cause if isinstance(cause, Exception) else error)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, exceptions.RaySystemError):
        return Failed(
            UnsupportedError(f"a worker could not load the task: {lines[-1]}", hint=_HINT)
        )
    deaths = retries + 1
    message = f"the worker of this task died {deaths} times: {lines[0]}"
    return Failed(PenstockError(message), deaths)


# -- on a worker ----------------------------------------------------------------------------------


def _run_packed(place: bytes, tasks: list[bytes]) -> bytes:
    try:
        mine, loaded = pickle.loads(place), list(map(pickle.loads, tasks))  # noqa: S301
    except ImportError as error:
        raise UnsupportedError(f"a worker could not load the task: {error}", hint=_HINT) from None
    return packed(_run(mine, loaded))


class _Again:
    """In place of the result of a task that is to be run again."""


@cache
def _version() -> str:
    return version("penstock")  # reads files


def _run(place: Place, tasks: list[Any]) -> tuple[list[Any], float]:
    """Run a group of tasks. Return their results, and the seconds that they took."""
    begun, own = time.monotonic(), _version()
    if own != place.version:
        raise UnsupportedError(
            f"a machine of the cluster has penstock {own}, and this one has {place.version}",
            hint="install the same version on all machines",
        )
    if place.folder is not None:
        os.chdir(place.folder)
    use_cores(place.cores)
    results = [_result(place.function, task, is_alone=len(tasks) == 1) for task in tasks]
    return results, time.monotonic() - begun


def _result(function: Callable[[Any], Any], task: Any, *, is_alone: bool) -> Any:
    try:
        return function(task)
    except StorageError:
        if not is_alone:
            return _Again()
        raise  # Ray runs the task again
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the verb was called
        return Failed(error)
