"""Locks of a folder in a storage without locks: an object store.

A lock is an object that is created only if there is none of its name. The holder writes it again every 20 s, and removes
it at the end. A killed process leaves it, and it is taken over

- at once, if the process ran on this machine: the holder also locks a file in the user's cache (`flock`), and the system
  takes that lock away from a dead process;
- otherwise 2 minutes after the lock was written last, by the clock of the store.

To take over lock number 3, a process creates lock number 4. So of several processes only one takes it over, and a holder
that was only slow sees that there is a later lock, and stops.

A store may ignore the condition "only if there is none". So the same object is first created twice. If the store accepts
both, there is a warning: then two processes that begin within the same moment may both go on.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress

from penstock.errors import StorageError
from penstock.storage import journal
from penstock.storage.base import Storage

AGAIN_SECONDS = 20
STALE_SECONDS = 120
_NAME = re.compile(r"lock-(\d{5})\.json")
_ID = re.compile(r"[0-9a-f]{32}")
_MOST_BYTES = 4096


class StoreLock:
    """The lock of this process on a folder."""

    def __init__(self, storage: Storage, folder: str, message: str, about: str) -> None:
        self._storage, self._folder = storage, folder
        self._refusal = message, about
        self.id = os.urandom(16).hex()
        self._text = json.dumps({"holder": self.id}).encode()
        self._number = -1
        self._is_lost = False
        self._stop = threading.Event()

    # -- taking it --------------------------------------------------------------------------------

    def take(self, probe: str) -> None:
        """Create the lock, or raise BlockingIOError. `probe` was written just now: it shows the store's clock."""
        there = self._numbers()
        if there and self._lives(there[-1], probe):
            raise self._refused()
        number = there[-1] + 1 if there else 0
        try:
            self._storage.save(self._path(number), self._text, overwrite=False)
        except FileExistsError:
            raise self._refused() from None
        self._number = number
        for other in self._numbers():
            is_dead = other < number and (other in there[-1:] or not self._lives(other, probe))
            if other != number and not is_dead:
                self._remove()
                raise self._refused()
            if is_dead:
                self._bury(other)
        if self._storage.load(self._path(number), _MOST_BYTES) != self._text:
            raise self._refused()  # another process replaced it, in a store that ignores the condition

    def _refused(self) -> BlockingIOError:
        return BlockingIOError(errno.EAGAIN, *self._refusal)

    def _path(self, number: int) -> str:
        return f"{self._folder}/lock-{number:05d}.json"

    def _numbers(self) -> list[int]:
        names = map(os.path.basename, self._storage.list(self._folder))
        return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))

    def _lives(self, number: int, probe: str) -> bool:
        """Whether the holder of a lock seems to be alive."""
        path = self._path(number)
        text = self._storage.load(path, _MOST_BYTES)
        if text is None:
            return False
        is_here = lives_here(text)
        if is_here is not None:
            return is_here
        written, now = self._storage.written(path), self._storage.written(probe)
        return written is None or now is None or now - written < STALE_SECONDS

    def _bury(self, number: int) -> None:
        """Remove the lock of a dead process, and its mark on this machine."""
        path = self._path(number)
        holder = _holder(self._storage.load(path, _MOST_BYTES) or b"")
        self._storage.remove(path)
        with suppress(OSError):
            os.unlink(_mark(holder))

    def remove_probes(self, mine: str) -> None:
        """Remove what processes left that were killed before. One that looks for the lock now is refused without it, too."""
        for path in self._storage.list(self._folder):
            if os.path.basename(path).startswith("probe-") and path != mine:
                self._storage.remove(path)

    # -- holding it -------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise BlockingIOError if another process took the lock over, because this one did not write it in time."""
        if self._is_lost:
            raise self._refused()

    def _remove(self) -> None:
        with suppress(StorageError):
            self._storage.remove(self._path(self._number))
            self._number = -1

    @property
    def is_there(self) -> bool:
        """Whether the lock could not be removed. Then it is that of a dead process."""
        return self._number >= 0

    @contextmanager
    def held(self) -> Generator[None]:
        """Write the lock again and again during the block, and remove it at the end."""
        thread = threading.Thread(target=self._keep, name="penstock-lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
            if not self._is_lost:
                self._remove()

    def _keep(self) -> None:
        while not self._stop.wait(AGAIN_SECONDS):
            with suppress(StorageError):
                if max(self._numbers(), default=self._number) > self._number:
                    self._is_lost = True
                    return
                self._storage.save(self._path(self._number), self._text)


@contextmanager
def alone_in(storage: Storage, folder: str, message: str, about: str) -> Generator[StoreLock]:
    """Lock a folder during the block.

    Raises:
        BlockingIOError: another process holds the lock. The error has this message, and names the file `about`.
    """
    probe = f"{folder}/probe-{os.urandom(6).hex()}"
    lock = StoreLock(storage, folder, message, about)
    storage.save(probe, b"first", overwrite=False)
    try:
        _test(storage, probe, about)
        with _alive_here(lock):
            lock.take(probe)
            lock.remove_probes(probe)
            with lock.held():
                yield lock
    finally:
        with suppress(StorageError):
            storage.remove(probe)


def _test(storage: Storage, probe: str, about: str) -> None:
    try:
        # Other bytes: equal ones would be taken for those of an earlier attempt whose answer was lost.
        storage.save(probe, b"second", overwrite=False)
    except FileExistsError:
        return
    warnings.warn(
        f"{about}: this store replaces an object that must be new, so its locks are weak: "
        "nobody else may write there until this is done",
        stacklevel=2,
    )


def _holder(text: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError):
        holder = json.loads(text)["holder"]
        if isinstance(holder, str) and _ID.fullmatch(holder):
            return holder
    return ""


# -- whether a process of this machine is alive ---------------------------------------------------


def _mark(holder: str) -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "penstock", "jobs", f"{holder}.lock")


@contextmanager
def _alive_here(lock: StoreLock) -> Generator[None]:
    """Show other processes of this machine that this one is alive, if there is a cache. The mark of a lock that could not
    be removed stays, so that they know that it is dead."""
    path, file = _mark(lock.id), -1
    with suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        journal.lock(file)
    try:
        yield
    finally:
        if file >= 0:
            if not lock.is_there:
                with suppress(OSError):
                    os.unlink(path)
            os.close(file)


def lives_here(text: bytes) -> bool | None:
    """Whether the holder of a lock with this text is alive; None if it does not seem to be a process of this machine."""
    holder = _holder(text)
    if not holder:
        return None
    try:
        file = os.open(_mark(holder), os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
    try:
        return not journal.lock(file)
    except OSError:
        return None
    finally:
        os.close(file)
