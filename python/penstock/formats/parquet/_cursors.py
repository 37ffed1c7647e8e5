"""Cursors over row groups. A row group can be decoded only from its start, so a part of it is decoded after the parts
before it. All threads that request parts of a row group share its cursor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from penstock.columns.batches import empty_batch, empty_columns
from penstock.engine.locks import Lock
from penstock.engine.threads import wait_for
from penstock.errors import FormatError

IDLE_CURSORS = 4


class Cursor:
    """Reads the records of one row group from the start, in steps of any size."""

    def __init__(self, batches: Iterator[Any], num_records: int, schema: Any, path: str) -> None:
        self.at = 0
        self.num_records = num_records
        self._batches = batches
        self._schema = schema
        self._path = path
        self._left: Any = None

    def read(self, count: int) -> Any:
        parts: list[Any] = []
        missing = count
        while missing:
            batch = self._left if self._left is not None else next(self._batches, None)
            if batch is None:
                done = self.at + count - missing
                raise FormatError(f"a row group ends after {done} of its records", file=self._path)
            part = batch.slice(0, missing)
            self._left = batch.slice(missing) if batch.num_rows > missing else None
            missing -= part.num_rows
            parts.append(part)
        self.at += count
        if self.at == self.num_records:
            next(self._batches, None)  # the end, so that the file's reader is free again
        if not self._schema.names:
            return empty_columns(count)
        if not parts:
            return empty_batch(self._schema)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


class Cursors:
    """The idle cursors of a file, by row group and columns."""

    def __init__(self) -> None:
        self._idle: list[tuple[Any, Cursor]] = []
        self._pending: dict[Any, list[int]] = {}
        self._process = os.getpid()
        self._lock = Lock()
        self._turn = threading.Condition(self._lock)

    @contextmanager
    def borrow(
        self, key: Any, start: int, end: int, make: Callable[[], Cursor]
    ) -> Generator[Cursor, None, None]:
        """Borrow a cursor at or before `start`. The caller reads up to `end`."""
        with self._in_turn(key, start, end):
            cursor = self._resume(key, start) or make()
            yield cursor
            # Not in a finally block, because the state of a cursor is unknown after an error.
            if cursor.at < cursor.num_records:
                self._keep(key, cursor)

    @contextmanager
    def _in_turn(self, key: Any, start: int, end: int) -> Generator[None, None, None]:
        """Wait for all earlier parts of the same row group that are in progress. So threads pass on one cursor, instead
        of each decoding the row group from the start."""
        with self._lock:
            if self._process != os.getpid():
                # In a forked child, the pending parts are those of its parent's threads.
                self._pending, self._idle, self._process = {}, [], os.getpid()
            pending = self._pending.setdefault(key, [])
        try:
            with self._lock:
                pending.append(end)
                wait_for(self._turn, lambda: min(pending) > start)
            yield
        finally:
            with self._lock:
                if end in pending:
                    pending.remove(end)
                if not pending:
                    self._pending.pop(key, None)
                self._turn.notify_all()

    def _resume(self, key: Any, start: int) -> Cursor | None:
        """Take the idle cursor that is nearest to `start` without being past it, if there is one."""
        with self._lock:
            before = [c for k, c in self._idle if k == key and c.at <= start]
            if not before:
                return None
            cursor = max(before, key=lambda c: c.at)
            self._idle.remove((key, cursor))
            return cursor

    def _keep(self, key: Any, cursor: Cursor) -> None:
        with self._lock:
            self._idle.append((key, cursor))
            del self._idle[:-IDLE_CURSORS]

    def clear(self) -> None:
        with self._lock:
            self._idle.clear()
