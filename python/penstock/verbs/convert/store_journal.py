"""The journal of a conversion into a store, which cannot rename files. With it, a killed conversion can continue.

Each shard gets its final name when it is finished, so others may see some of the shards before all are there. The journal
is in the hidden folder `.penstock-convert-…` beside the target:

| object | contents |
|---|---|
| `lock-00000.json` | the lock of the running job (`store_lock`) |
| `job.json` | a digest of the source and the options, and the names of all shards |
| `00012.json` | of shard 12: its state, bytes and notes; or that it is about to be written |

A finished shard counts only if the object still has the state that the journal lists. A job with another source or
other options is a different job. It removes the finished shards of the earlier one, as far as nobody changed them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from penstock.columns.facts import parsed_object
from penstock.engine.pipeline import in_order
from penstock.storage.base import Storage
from penstock.storage.journal import Made, made_from, temporaries_of, text_of, token_of
from penstock.storage.store_lock import StoreLock, alone_in

_SHARD = re.compile(r"(\d{5,})\.json")
_MOST_BYTES = 64 << 20
_BUSY = "another conversion is writing it; wait until that ends, or 2 minutes if it was killed"

Item = TypeVar("Item")
Result = TypeVar("Result")


def folder_of(target: str, place: str) -> str:
    """The folder of the journal of a target, whose files are in `place`."""
    token = token_of(os.path.basename(target.rstrip("/")))
    return os.path.join(place, f".penstock-convert-{token}")


@contextmanager
def alone_with(storage: Storage, target: str, place: str) -> Generator[StoreLock]:
    """Lock a target, whose files are in `place`, against other conversions, or raise BlockingIOError."""
    with alone_in(storage, folder_of(target, place), _BUSY, target) as lock:
        yield lock


class Entry(NamedTuple):
    """The entry of one shard. Workers on other machines use it, too."""

    storage: Storage
    path: str
    has_begun: bool | None
    """Whether an earlier attempt has begun to write the shard. None: it has if the entry is there."""

    @contextmanager
    def writing(self, *, overwrite: bool) -> Generator[bool]:
        """Write the shard in the block. The value is whether it may replace an object: without `overwrite` only one that
        an earlier attempt of this job wrote without coming to note it."""
        has_begun = self.has_begun
        if has_begun is None and not overwrite:
            has_begun = self.storage.load(self.path, _MOST_BYTES) is not None
        if overwrite or has_begun:
            yield True
            return
        self.storage.save(self.path, b"{}")
        try:
            yield False
        except FileExistsError:
            self.storage.remove(self.path)  # it is somebody else's
            raise

    def finish(self, made: Made) -> None:
        """Note that the shard is finished."""
        self.storage.save(self.path, text_of(made))


class StoreJournal:
    """The finished shards of one target. Only one thread of one process may use it at a time.

    Args:
        beside: the names of the files that belong to a shard, such as its index.
    """

    def __init__(
        self,
        storage: Storage,
        folder: str,
        job: Any,
        finals: Sequence[str],
        beside: Callable[[str], Iterable[str]],
    ) -> None:
        self._storage, self._folder = storage, folder
        self._job = token_of(json.dumps(job, sort_keys=True, default=str))
        self._finals = list(finals)
        self._beside = beside
        self.done: dict[int, Made] = {}
        self._begun: set[int] = set()

    def load(self, *, overwrite: bool) -> None:
        """Find out which shards an earlier run of this job has finished, and remove what it left unfinished, and what
        other jobs left. Raise FileExistsError if another shard exists and `overwrite` is False."""
        job, finals = self._stored()
        done, begun = self._entries()
        if job == self._job and finals == self._finals:
            self.done = dict(self._still_there(done, finals))
            self._begun = begun - self.done.keys()
        else:
            self._undo(done, begun, finals)
        self._give_up_uploads()
        if not overwrite:
            self._refuse_existing()
        facts = {"job": self._job, "files": self._finals}
        self._storage.save(self._path("job"), json.dumps(facts).encode())

    def entry(self, number: int) -> Entry:
        """The entry of a shard."""
        return Entry(self._storage, self._path(f"{number:05d}"), number in self._begun)

    def finish(self, number: int, made: Made) -> None:
        """Count a shard whose entry says that it is finished."""
        self.done[number] = made

    def undo(self) -> None:
        """Remove what this job has written, and the journal."""
        self._undo(self.done, set(), self._finals)

    def forget(self) -> None:
        """Remove the journal, once the job is done."""
        # Without this object, no other one counts.
        self._storage.remove(self._path("job"))
        self._run(self._storage.remove, (path for _, path in self._paths()))

    # -- what is there ----------------------------------------------------------------------------

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}.json"

    def _paths(self) -> list[tuple[int, str]]:
        """The entries of shards: number and path."""
        listed = self._storage.list(self._folder)
        names = ((_SHARD.fullmatch(os.path.basename(path)), path) for path in listed)
        return [(int(found[1]), path) for found, path in names if found is not None]

    def _stored(self) -> tuple[str, list[str]]:
        """The job that the journal belongs to and the names of its shards; empty if there is none."""
        text = self._storage.load(self._path("job"), _MOST_BYTES + 1)
        with suppress(ValueError):
            facts = parsed_object(text or b"", _MOST_BYTES)
            return facts.text("job"), facts.paths("files")
        return "", []

    def _entries(self) -> tuple[dict[int, Made], set[int]]:
        """The shards that are finished, and those that were begun."""
        paths = self._paths()
        made = self._run(self._entry, (path for _, path in paths))
        found = dict(zip((number for number, _ in paths), made, strict=True))
        done = {number: entry for number, entry in found.items() if entry is not None}
        return done, found.keys() - done.keys()

    def _entry(self, path: str) -> Made | None:
        text = self._storage.load(path, _MOST_BYTES)
        return made_from(text or b"")

    def _still_there(
        self, done: dict[int, Made], finals: Sequence[str]
    ) -> Iterator[tuple[int, Made]]:
        known = [number for number in sorted(done) if number < len(finals)]
        states = self._run(self._storage.state, (finals[number] for number in known))
        for number, state in zip(known, states, strict=True):
            if state is not None and state == done[number].state:
                yield number, done[number]

    def _refuse_existing(self) -> None:
        ours = self.done.keys() | self._begun
        paths = [path for number, path in enumerate(self._finals) if number not in ours]
        for path, state in zip(paths, self._run(self._storage.state, paths), strict=True):
            if state is not None:
                raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")

    def _run(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call a function for many items, as many at a time as the storage takes."""
        threads = self._storage.reads_at_once or 1
        return list(
            in_order([lambda: iter(items)], lambda one: [function(one)], lambda _: 0, threads)
        )

    # -- what is left -----------------------------------------------------------------------------

    def _give_up_uploads(self) -> None:
        """Abort the uploads of these shards that a killed process left."""
        is_left = temporaries_of({os.path.basename(path) for path in self._finals})
        for folder in dict.fromkeys(os.path.dirname(path) for path in self._finals):
            for path in self._storage.own_files(folder):
                if is_left(os.path.basename(path)):
                    self._storage.give_up(path)

    def _undo(self, done: dict[int, Made], begun: set[int], finals: Sequence[str]) -> None:
        ours = [number for number, _ in self._still_there(done, finals)]
        ours += [number for number in begun if number < len(finals)]
        paths = [
            path for number in ours for path in (finals[number], *self._beside(finals[number]))
        ]
        self._run(self._storage.remove, paths)
        self.done, self._begun = {}, set()
        self.forget()
