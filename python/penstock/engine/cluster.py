"""Where the tasks of a long verb run instead of in threads: on the machines of a cluster (`on=`).

A verb over several shards gives a module-level function and one small, picklable task for each shard. The result of a
task depends on nothing but the task, and the names of what it writes come from the plan, so that it can be run again
after its worker died.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from penstock.errors import UnsupportedError

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failed:
    """A task that has no result, and why."""

    error: Exception
    num_deaths: int = 0
    """How many workers died of it, if that is the reason."""


class Machines(Protocol):
    """What `on=` takes. `penstock.ray.Cluster` is one."""

    def run(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], paths: Iterable[str]
    ) -> Generator[tuple[int, Result | Failed]]:
        """Run a function on each task, and yield the number of each task with its result as they are done, in any
        order. A task that fails does not stop the others. Closing the generator cancels what is running.

        Args:
            function: a function of a module, which each machine imports.
            tasks: what it is called with. They are pickled.
            paths: the files and folders that the tasks read and write. Those of this machine may be out of reach of
                others. Relative ones are meant from the folder of this process.
        """
        ...


def machines_of(on: Any) -> Machines:
    """Return what runs the tasks of a verb: `on` itself, or the cluster of Ray that it names.

    Raises:
        ValueError: it names something else.
        UnsupportedError: Ray is not installed.
        TypeError: it is neither a name nor has a method `run`.
    """
    if isinstance(on, str):
        if on != "ray" and not on.startswith("ray://"):
            raise ValueError(
                f'on={on!r} is not "ray", and not an address such as "ray://host:10001"'
            )
        try:
            ray = import_module("penstock.ray")
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"on={on!r} needs Ray", hint="pip install 'penstock[ray]'"
            ) from error
        return ray.Cluster(None if on == "ray" else on)
    if not callable(getattr(on, "run", None)):
        raise TypeError(f'on= takes "ray", an address or a penstock.ray.Cluster, not {on!r}')
    return on


def refuse(on: Any, why: str, hint: str) -> None:
    """Raise UnsupportedError if `on` is not None, for a verb that does not run on a cluster."""
    if on is not None:
        raise UnsupportedError(f"{why}, so on= is not possible here", hint=hint)


def all_of(
    found: Generator[tuple[int, Result | Failed]],
    done: Callable[[int, Result], None] | None = None,
) -> list[Result]:
    """Return the results in the order of the tasks. `done` is called with the number and the result of each task when
    it ends. If tasks failed, the error of the first of them is raised when all others are done, with a note that counts
    the others that failed."""
    results: dict[int, Result] = {}
    failed: dict[int, Exception] = {}
    with closing(
        found
    ):  # an error in `done` must not leave tasks running, as long as its traceback lives
        for number, result in found:
            if isinstance(result, Failed):
                failed[number] = result.error
                continue
            if done is not None:
                done(number, result)
            results[number] = result
    if failed:
        error = failed[min(failed)]
        if len(failed) > 1:
            error.add_note(f"{len(failed) - 1} more tasks failed; {len(results)} are done")
        raise error
    return [results[number] for number in sorted(results)]
