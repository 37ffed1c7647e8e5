"""A thread that works ahead of who reads: `prefetch`.

It holds nothing of the reader's. When the reader is dropped, in the middle too, it ends.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from penstock.tf.data.failures import Failure, guarded

_PATIENCE = 0.5
"""Seconds that a reader who leaves waits for what the thread is doing."""


class _Shared:
    """What both sides hold. The queue needs no lock of its own; the condition is for who must wait."""

    def __init__(self, values: Iterator[Any], most: int) -> None:
        self.values: Iterator[Any] | None = values
        self.most = most
        self.queue: deque[Any] = deque()
        self.changed = threading.Condition(threading.RLock())
        self.is_waiting = False
        self.is_full = False
        self.is_over = False
        self.is_dropped = False

    def work(self) -> None:
        assert self.values is not None
        values, self.values = self.values, None
        try:
            for value in guarded(values):
                self._put(value)
                del value
                if self.is_dropped:
                    break
        except BaseException as error:
            self._put(Failure(error))
        finally:
            # Closed here and not wherever the last reference goes: it may own threads itself.
            close = getattr(values, "close", None)
            del values
            if close is not None:
                close()
            with self.changed:
                self.is_over = True
                self.changed.notify_all()

    def _put(self, value: Any) -> None:
        if len(self.queue) >= self.most:
            with self.changed:
                self.is_full = True  # told before the look, or a reader could miss it
                while len(self.queue) >= self.most and not self.is_dropped:
                    self.changed.wait()
                self.is_full = False
        self.queue.append(value)
        if self.is_waiting:
            with self.changed:
                self.changed.notify_all()

    def get(self) -> Any:
        """The next value; raises IndexError behind the last."""
        try:
            value = self.queue.popleft()
        except IndexError:
            with self.changed:
                self.is_waiting = True
                while not self.queue and not self.is_over:
                    self.changed.wait(0.5)
                self.is_waiting = False
            value = self.queue.popleft()
        if self.is_full:
            with self.changed:
                self.changed.notify_all()
        return value


_ALL: weakref.WeakSet[Ahead] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for each in list(_ALL):
        each.close()


class Ahead:
    """An iterator whose values are made by a thread, a few ahead.

    Args:
        values: what it reads; from the first value on the thread's alone, which closes it, too.
        most: values that may wait.
    """

    def __init__(self, values: Iterator[Any], most: int) -> None:
        self._shared = _Shared(values, most)
        self._thread: threading.Thread | None = None
        self._process = os.getpid()

    def __iter__(self) -> Ahead:
        return self

    def __next__(self) -> Any:
        if self._thread is None:
            self._start()
        elif os.getpid() != self._process:
            raise RuntimeError("an iterator cannot go on in a forked process; make a new one there")
        try:
            value = self._shared.get()
        except IndexError:
            raise StopIteration from None
        if type(value) is Failure:
            value.throw()
        return value

    def _start(self) -> None:
        self._process = os.getpid()
        self._thread = threading.Thread(
            target=self._shared.work, name="penstock-prefetch", daemon=True
        )
        _ALL.add(self)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and with it what it reads."""
        shared, thread = self._shared, self._thread
        shared.is_dropped = True
        if thread is None or os.getpid() != self._process:
            return
        with shared.changed:
            shared.changed.notify_all()
        if thread is not threading.current_thread():
            thread.join(_PATIENCE)

    def __del__(self) -> None:
        self.close()
