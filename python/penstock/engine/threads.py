"""Threads that run the tasks of `pipeline.in_order`, and the one that reads the results."""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

LEAVE_SECONDS = 0.5
"""How long, in seconds, a consumer that stops early waits for threads still running user code."""
_SIGNALS_SECONDS = 1.0
"""After so long a wait ends, so that Ctrl-C is seen that came in the moment before it began: Python looks for
signals before it waits, and a wait without an end would go on until a result comes."""
_EXIT_SECONDS = 10.0
"""How long, in seconds, program exit waits for threads in penstock's own code, where no call takes long."""
_LOOK = 0.05
"""Seconds after which one who waits for a thread looks where it is."""


_UNDER_WAY: weakref.WeakSet[Work[Any, Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End what nobody has read to its end. Later the interpreter would end the threads, one by one
    as each comes back from a kernel, and Rust lets no thread be ended inside of it."""
    for work in list(_UNDER_WAY):
        work.stop(_EXIT_SECONDS)


class _Thread(threading.Thread):
    """A thread that records whether it is running user code and whether its caller has left."""

    in_users_code = False
    is_left = False


@contextmanager
def users_code() -> Generator[None]:
    """Marks user code, which may take any time: shutdown does not wait for it; its thread exits when the call returns
    or the process ends."""
    thread = threading.current_thread()
    if not isinstance(thread, _Thread):
        yield
        return
    thread.in_users_code = True
    try:
        yield
    finally:
        thread.in_users_code = False


def wait_for(changed: threading.Condition, is_so: Callable[[], bool]) -> None:
    """Wait in a task, with the lock of `changed`, for what an earlier task will do. That lock is taken by
    itself, not by `with changed`: in the caller's thread Ctrl-C could come before `with` knows that it has it.

    Raises:
        InterruptedError: the caller has left. Ctrl-C may have met it just when it had the earlier task.
    """
    thread = threading.current_thread()
    while not changed.wait_for(is_so, _LOOK):
        if isinstance(thread, _Thread) and thread.is_left:
            raise InterruptedError("the reader has left")


class _Failure:
    """An error that takes its place among the results, after those that came before it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _raise_interrupt(error: BaseException) -> None:
    """Ctrl-C in a task of the main thread's: at once, and not when its turn comes."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and isinstance(error, KeyboardInterrupt):
        raise error


class _Stream(Generic[Task, Result]):
    """One stream's tasks and what became of them."""

    def __init__(self, opener: Callable[[], Iterator[Task]]) -> None:
        self.opener = opener
        self.tasks: Iterator[Task] | None = None
        self.busy = False
        self.exhausted = False
        self.next_number = 0
        self.yielded = 0
        self.done: dict[int, deque[Result | _Failure]] = {}


class Caller:
    """What the thread that reads the results is doing, as far as the others must know."""

    def __init__(self, helps_within: float | None) -> None:
        self.helps = helps_within is not None
        self._within = helps_within or 0.0
        self.is_waiting = False
        self.has_task = False
        self.latest: _Stream[Any, Any] | None = None
        self._left: float | None = None

    @contextmanager
    def away(self) -> Generator[None]:
        """It is gone with a result."""
        self._left = time.monotonic()
        yield
        self._left = None

    @property
    def wants_task(self) -> bool:
        """Whether it waits, and would do a task meanwhile."""
        return self.helps and self.is_waiting

    def will_help(self) -> bool:
        """Whether it is about to ask for a task, so that a place is kept for it."""
        left = self._left  # once: it may come back meanwhile
        is_here = left is None or time.monotonic() - left < self._within
        return self.helps and not self.has_task and is_here

    def seconds_kept(self) -> float | None:
        """For how long a place is kept for it while it is away; None for as long as it likes."""
        left = self._left
        if not self.will_help() or left is None or self._within == math.inf:
            return None
        return max(left + self._within - time.monotonic(), 0.0)


class Work(Generic[Task, Result]):
    """The shared state of the threads; everything in it is guarded by one lock.

    Two conditions on that lock keep wake-ups to those who can use them: `ready` is for the
    consumer, `free` for threads that look for a task.
    """

    def __init__(
        self,
        streams: Sequence[Callable[[], Iterator[Task]]],
        run: Callable[[Task], Iterable[Result]],
        size: Callable[[Result], int],
        threads: int,
        budget_bytes: int | Callable[[], int],
        need: Callable[[], int | None] | None,
        counts_taken: bool,
        at_once: Callable[[], int] | None,
        caller: Caller,
    ) -> None:
        self._unopened: deque[_Stream[Task, Result]] = deque(_Stream(s) for s in streams)
        self._open: list[_Stream[Task, Result]] = []
        self._run = run
        self._size = size
        self._budget = budget_bytes if callable(budget_bytes) else lambda: budget_bytes
        self._held_bytes = 0
        self._running = 0
        self._largest_bytes = 0
        self._need = need
        self._counts_taken = counts_taken
        self._at_once = at_once or (lambda: threads)
        self._threads = threads
        self._idle = 0
        self._stopped = self._is_over = False
        # Re-entrant, since a scan that nobody holds may be collected in the middle of any of this.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._ready = threading.Condition(self._lock)
        self._free = threading.Condition(self._lock)
        self._pool = [
            _Thread(target=self._serve, name=f"penstock-{n}", daemon=True) for n in range(threads)
        ]
        self._caller = caller

    def start(self) -> None:
        _UNDER_WAY.add(self)
        for thread in self._pool:
            thread.start()

    def stop(self, at_most: float = math.inf) -> None:
        if self._is_over:
            return  # a loop that the interpreter ends as its last, when modules are empty already
        self._stopped = True
        if os.getpid() != self._process:
            return  # a forked child has neither the threads nor, perhaps, the lock
        for thread in self._pool:
            thread.is_left = True
        with self._lock:
            self._free.notify_all()
        begun = time.monotonic()
        for thread in self._pool:
            # Ctrl-C may come before all have been started, and the last holder of a scan may be
            # one of its own threads.
            if thread.ident is None or thread is threading.current_thread():
                continue
            while thread.is_alive():
                waited = time.monotonic() - begun
                if waited > (min(LEAVE_SECONDS, at_most) if thread.in_users_code else at_most):
                    break
                thread.join(_LOOK)
        _UNDER_WAY.discard(self)
        self._is_over = True

    # -- the consumer's side --------------------------------------------------------------------

    def results(self) -> Iterator[Result]:
        taken_bytes = 0
        while (done := self._next_task_results()) is not None:
            while done:
                result = done.popleft()
                if isinstance(result, _Failure):
                    try:
                        raise result.error
                    finally:
                        del result  # its error knows this frame
                num_bytes = self._size(result)
                with self._lock:
                    self._held_bytes -= taken_bytes if self._counts_taken else num_bytes
                    self._wake(1)
                taken_bytes = num_bytes
                with self._caller.away():
                    yield result
                del result

    def _next_task_results(self) -> deque[Result | _Failure] | None:
        """The results of the next task in order, or None after the last."""
        if os.getpid() != self._process:
            raise RuntimeError("a scan cannot go on in a forked process; start a new one there")
        while True:
            with self._lock:
                found = self._ready_or_task()
            if not isinstance(found, _Stream):
                return found
            self._fetch_and_do(found)
            self._caller.has_task = False

    def _ready_or_task(
        self,
    ) -> deque[Result | _Failure] | _Stream[Task, Result] | None:
        """The next results, waited for; or, where this thread helps, what it may do meanwhile."""
        while self._open or self._unopened:
            if not self._open:
                self._open.append(self._unopened.popleft())
                self._wake(self._threads)
            head = self._open[0]
            done = head.done.pop(head.yielded, None)
            if done is not None:
                head.yielded += 1
                self._wake(1)
                return done
            if head.exhausted and head.yielded == head.next_number:
                self._open.pop(0)
                self._wake(self._threads)
            elif self._caller.helps and (
                stream := self._choose(self._at_once(), self._caller.latest)
            ):
                self._caller.has_task = True
                self._caller.latest = stream
                return self._claimed(stream)
            else:
                self._caller.is_waiting = True
                self._ready.wait(_SIGNALS_SECONDS)
                self._caller.is_waiting = False
        return None

    def _wake(self, count: int) -> None:
        # Not where there is nothing for them: each would ask for the lock and for the GIL.
        if self._idle and (self._stopped or self._running < self._most_for_pool()):
            self._free.notify(min(count, self._idle))

    def _most_for_pool(self) -> int:
        """How many tasks may run before the pool takes no more."""
        return self._at_once() - (1 if self._caller.will_help() else 0)

    # -- the threads' side ----------------------------------------------------------------------

    def _serve(self) -> None:
        latest: _Stream[Task, Result] | None = None
        while (latest := self._claim(latest)) is not None:
            self._fetch_and_do(latest)

    def _fetch_and_do(self, stream: _Stream[Task, Result]) -> None:
        number = stream.next_number
        try:
            if stream.tasks is None:
                stream.tasks = stream.opener()
            task = next(stream.tasks, None)
        except BaseException as error:
            self._release(stream, exhausted=True, fetched=True)
            self._deliver(stream, number, deque([_Failure(error)]), 0)
            _raise_interrupt(error)
            return
        self._release(stream, exhausted=task is None, fetched=task is not None)
        if task is not None:
            self._do(stream, number, task)

    def _claim(self, latest: _Stream[Task, Result] | None) -> _Stream[Task, Result] | None:
        """Wait for a stream that has a task to fetch; None when there is nothing left to do."""
        with self._lock:
            while not self._stopped:
                stream = self._choose(self._most_for_pool(), latest)
                if stream is not None:
                    return self._claimed(stream)
                if not self._unopened and all(s.exhausted for s in self._open):
                    return None
                self._idle += 1
                self._free.wait(self._caller.seconds_kept())
                self._idle -= 1
            return None

    def _claimed(self, stream: _Stream[Task, Result]) -> _Stream[Task, Result]:
        # Who looks for a task counts: that may be most of the work.
        stream.busy = True
        self._running += 1
        return stream

    def _choose(
        self, most: int, latest: _Stream[Task, Result] | None
    ) -> _Stream[Task, Result] | None:
        """A stream that has a task to fetch: the first there is, or the `latest` of a thread, whose state is
        in the caches of its core, while results of the first are on their way."""
        if self._running >= most:
            return None
        # What is being made needs room as well.
        need = self._largest_bytes if self._need is None else self._need()
        if need is None:
            room = not self._running and not self._held_bytes
        else:
            room = self._held_bytes + (self._running + 1) * need <= self._budget()
        first: _Stream[Task, Result] | None = None
        for place, stream in enumerate(self._open):
            if stream.busy or stream.exhausted:
                continue
            ahead = stream.next_number - stream.yielded
            # The result that comes next may always be made, whatever the budget says.
            if place == 0 and not ahead:
                return stream
            if room and ahead < 8 * self._threads + 8:
                if stream is latest:
                    return stream
                first = first or stream
        if first is not None:
            return first
        if self._unopened and room and len(self._open) <= self._threads:
            self._open.append(self._unopened.popleft())
            return self._open[-1]
        return None

    def _release(self, stream: _Stream[Task, Result], *, exhausted: bool, fetched: bool) -> None:
        with self._lock:
            stream.busy = False
            stream.exhausted = exhausted
            stream.next_number += fetched
            if not fetched:
                self._running -= 1
            if exhausted or (self._caller.wants_task):
                self._ready.notify()
            self._wake(self._threads if exhausted else 1)

    def _do(self, stream: _Stream[Task, Result], number: int, task: Task) -> None:
        done: deque[Result | _Failure] = deque()
        held = 0
        try:
            for result in self._run(task):
                done.append(result)
                held += self._size(result)
        except BaseException as error:
            done.append(_Failure(error))
        self._deliver(stream, number, done, held)
        if done and isinstance(done[-1], _Failure):
            _raise_interrupt(done[-1].error)

    def _deliver(
        self,
        stream: _Stream[Task, Result],
        number: int,
        done: deque[Result | _Failure],
        held_bytes: int,
    ) -> None:
        with self._lock:
            stream.done[number] = done
            self._held_bytes += held_bytes
            self._running -= 1
            self._largest_bytes = max(self._largest_bytes, held_bytes)
            is_next = self._open and stream is self._open[0] and number == stream.yielded
            if is_next or (self._caller.wants_task):
                self._ready.notify()
