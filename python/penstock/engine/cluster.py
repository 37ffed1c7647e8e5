"""Where the tasks of a long verb run instead of in threads: on the machines of a cluster (`on=`).

A verb over several shards gives a module-level function and one small, picklable task for each shard. The result of a
task depends on nothing but the task, and the names of what it writes come from the plan, so that it can be run again
after its worker died.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Failed:
    """A task that has no result, and why."""

    error: Exception


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
            paths: the files that the tasks read and write. Files of this machine may be out of reach of others.
        """
        ...


def machines_of(on: Any) -> Machines:
    """Return what runs the tasks of a verb: `on` itself, or the cluster of Ray that it names.

    Raises:
        ValueError: it names something else.
        TypeError: it is neither a name nor has a method `run`.
    """
    if isinstance(on, str):
        if on != "ray" and not on.startswith("ray://"):
            raise ValueError(
                f'on={on!r} is not "ray", and not an address such as "ray://host:10001"'
            )
        return import_module("penstock.ray").Cluster(None if on == "ray" else on)
    if not callable(getattr(on, "run", None)):
        raise TypeError(f'on= takes "ray", an address or a penstock.ray.Cluster, not {on!r}')
    return on


def all_of(
    found: Iterable[tuple[int, Result | Failed]],
    done: Callable[[int, Result], None] | None = None,
) -> list[Result]:
    """Return the results in the order of the tasks. `done` is called with the number and the result of each task when
    it ends. If tasks failed, the error of the first of them is raised when all others are done, with a note that counts
    the others that failed."""
    results: dict[int, Result] = {}
    failed: dict[int, Exception] = {}
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
