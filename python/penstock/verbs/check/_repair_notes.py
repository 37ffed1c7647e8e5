"""Notes of the tasks of `repair` on a cluster, with which each file is repaired once.

A worker may die after it gave a new file its name and before it said so, and so may the process that called `repair`. So
a task writes a note beside the new file, `.penstock-repair-….json`: first that it begins, then what it did and the state
of the file. A task that finds the note of an earlier one of the same job, and the file in that state, has nothing to do.
The notes are removed when all files are done. Before, the first one says so, with what was done with each file: a kill
while they are removed then loses nothing, either.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from penstock.contract.report import Finding
from penstock.storage.base import Storage
from penstock.storage.hidden import JOB_PREFIX
from penstock.storage.journal import token_of

_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done with one file. `path` is the new file; None if none was written."""

    num_records: int
    num_bytes: int
    findings: tuple[Finding, ...]
    path: str | None


def own_name(target: str) -> str:
    """How the names of the hidden files for a target begin."""
    return f"{JOB_PREFIX}repair-{token_of(os.path.basename(target.rstrip('/')))}"


def note_of(target: str) -> str:
    """The path of the note of a target."""
    return os.path.join(os.path.dirname(target.rstrip("/")), f"{own_name(target)}.json")


class Note:
    """The note of one target. `job` says what is done with which file."""

    def __init__(self, storage: Storage, target: str, job: Any) -> None:
        self._storage, self._target = storage, target
        self._path = note_of(target)
        self._job = token_of(json.dumps(job, default=str))

    def once(self, repair: Callable[[bool], Repaired]) -> Repaired:
        """What an earlier task has done, or else what `repair` does. It is called with whether the target may be there,
        unfinished or without a note of its end."""
        before = self._load()
        state = None if before is None else before["state"]
        if before is not None and state is not None and state == self._storage.state(self._target):
            return _repaired(before)
        with self._begun(is_new=before is None):
            made = repair(before is not None)
        state = self._storage.state(self._target)
        if state is None:  # nothing could be saved
            self._storage.remove(self._path)
        else:
            self._save(state=state, **asdict(made))
        return made

    def keep_all(self, targets: Sequence[str], made: Sequence[Repaired]) -> None:
        """Note what was done with each file, when all are done."""
        if (own := self._load()) is not None:
            done = {"targets": list(targets), "made": [asdict(one) for one in made]}
            self._save(**{**own, "all": done})

    def all_made(self, targets: Sequence[str]) -> list[Repaired] | None:
        """What an earlier job on these files noted that it has done. None if it has not ended."""
        own = self._load()
        if own is None or "all" not in own or own["all"]["targets"] != list(targets):
            return None
        if own["state"] != self._storage.state(self._target):
            return None
        return [_repaired(one) for one in own["all"]["made"]]

    @contextmanager
    def _begun(self, *, is_new: bool) -> Generator[None]:
        if is_new:
            self._save(state=None)
        try:
            yield
        except FileExistsError:
            if is_new:
                self._storage.remove(self._path)  # what is there is somebody else's
            raise

    def _load(self) -> dict[str, Any] | None:
        text = self._storage.load(self._path, _MOST_BYTES)
        try:
            found = dict(json.loads(text or b""))
        except ValueError:
            return None
        return found if found.get("job") == self._job else None

    def _save(self, **facts: Any) -> None:
        self._storage.save(self._path, json.dumps({**facts, "job": self._job}).encode())


def _repaired(facts: dict[str, Any]) -> Repaired:
    findings = tuple(Finding(**finding) for finding in facts["findings"])
    return Repaired(facts["num_records"], facts["num_bytes"], findings, facts["path"])
