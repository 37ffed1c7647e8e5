"""The engine: threads that run tasks, and a consumer that takes the results in order.

Each stream (a shard) yields its tasks one at a time, because finding the next chunk may require reading or inflating.
The tasks run in parallel. A thread that finds the first stream busy takes the next one and stays with it. Files that
cannot be split, such as GZIP files of other writers, are therefore read in parallel, too.
"""

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
"""How long a consumer that stops early waits for threads in user code."""
_SIGNALS_SECONDS = 1.0
"""The longest single wait. Python handles signals before a wait, not during it. If waits were longer, Ctrl-C just
before a wait would have no effect until the next result."""
_EXIT_SECONDS = 10.0
"""How long the program's exit waits for threads that run penstock's own code, where no call takes long."""
_POLL_SECONDS = 0.05
"""How often a waiting thread checks on the thread for which it waits."""


_UNDER_WAY: weakref.WeakSet[Work[Any, Any]] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """End all threads before the interpreter exits. The interpreter would end a thread when it returns from a kernel,
    inside Rust code, which Rust does not allow."""
    for work in list(_UNDER_WAY):
        work.stop(_EXIT_SECONDS)


class _Thread(threading.Thread):
    """A thread that records whether it runs user code, and whether its consumer has stopped."""

    in_users_code = False
    is_left = False


@contextmanager
def users_code() -> Generator[None]:
    """Mark the block as user code, which may take any time, so that shutdown does not wait for it. Its thread ends when
    the block or the process ends."""
    thread = threading.current_thread()
    if not isinstance(thread, _Thread):
        yield
        return
    thread.in_users_code = True
    try:
        yield
    finally:
        thread.in_users_code = False


def raise_if_left() -> None:
    """End a task whose consumer has stopped, perhaps by Ctrl-C: raise InterruptedError. Tasks call this while they wait
    for something slow."""
    thread = threading.current_thread()
    if isinstance(thread, _Thread) and thread.is_left:
        raise InterruptedError("the consumer has stopped")


def wait_for(changed: threading.Condition, is_so: Callable[[], bool]) -> None:
    """Wait in a task, holding the lock of `changed`, until an earlier task makes `is_so` true.

    Acquire the lock with `with lock`, not `with changed`: the latter runs Python code, so Ctrl-C in the consumer's
    thread could come between acquiring the lock and entering the block.

    Raises:
        InterruptedError: the consumer has stopped, perhaps by Ctrl-C while it ran the earlier task.
    """
    while not changed.wait_for(is_so, _POLL_SECONDS):
        raise_if_left()


class _Failure:
    """An error in place of a result, raised after the results before it."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def first_of(done: deque[Result | _Failure]) -> Result:
    """Take the first result of a task, or raise the error in its place."""
    result = done.popleft()
    if not isinstance(result, _Failure):
        return result
    try:
        raise result.error
    finally:
        del result  # the error's traceback references this frame


def _raise_interrupt(error: BaseException) -> None:
    """If the main thread ran the task, raise Ctrl-C immediately, not after the earlier results."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and isinstance(error, KeyboardInterrupt):
        raise error


class Stream(Generic[Task, Result]):
    """A source of tasks, and the results that wait for the consumer. The thread that fetches the first task calls
    `open`."""

    def __init__(self, open: Callable[[], Iterator[Task]]) -> None:
        self._open = open
        self._tasks: Iterator[Task] | None = None
        self.busy = False
        """Whether a thread is fetching a task."""
        self.exhausted = False
        self.fetched = 0
        self.taken = 0
        self.done: dict[int, deque[Result | _Failure]] = {}

    @property
    def has_task(self) -> bool:
        """Whether there may be a task to fetch."""
        return not self.exhausted

    def fetch(self) -> Task | None:
        """The next task, or None after the last."""
        if self._tasks is None:
            self._tasks = self._open()
        return next(self._tasks, None)


class Queue(Stream[Task, Result]):
    """A stream that receives its tasks one by one."""

    def __init__(self) -> None:
        super().__init__(lambda: iter(()))
        self.waiting: deque[Task] = deque()

    @property
    def has_task(self) -> bool:
        return bool(self.waiting)

    def fetch(self) -> Task | None:
        return self.waiting.popleft()


class Work(Generic[Task, Result]):
    """Runs the tasks of streams on threads. One lock guards its state, and two conditions on it wake only threads that
    can continue: `ready` is for the consumer, `free` for threads that look for a task. For the arguments see
    `pipeline.in_order`.

    Unless `ahead`, the consumer is one of the threads: it runs a task instead of waiting, because waking another thread
    often takes longer than the task.
    """

    def __init__(
        self,
        streams: Sequence[Stream[Task, Result]],
        run: Callable[[Task], Iterable[Result]],
        size: Callable[[Result], int],
        threads: int,
        budget: Callable[[], float],
        need: Callable[[], float] | None = None,
        *,
        ahead: bool = False,
    ) -> None:
        self._unopened = deque(streams)
        self._open: list[Stream[Task, Result]] = []
        self._run = run
        self._size = size
        self._budget = budget
        # Not a method of self, because a reference cycle would keep the streams open until the garbage collector runs.
        self._need = need
        self._threads = threads
        self._helps = not ahead
        self._held_bytes = 0
        self._largest_bytes = 0
        self._running = 0
        self._idle = 0
        self._awaited: Stream[Task, Result] | None = None
        """The stream for whose next result the consumer waits."""
        self._latest: Stream[Task, Result] | None = None
        """The stream of the consumer's last task."""
        self._stopped = self._is_over = False
        # Re-entrant, because the garbage collector may close an unreferenced scan at any point of this code.
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._ready = threading.Condition(self._lock)
        self._free = threading.Condition(self._lock)
        self._pool = [
            _Thread(target=self._serve, name=f"penstock-{n}", daemon=True)
            for n in range(threads if ahead else threads - 1)
        ]

    def start(self) -> None:
        """Start the threads."""
        _UNDER_WAY.add(self)
        for thread in self._pool:
            thread.start()

    def stop(self, at_most: float = math.inf) -> None:
        """Wait at most `at_most` seconds for running tasks, but not for user code, and end the threads."""
        if self._is_over:
            return  # use no module, because the interpreter may have cleared them at its end
        self._stopped = True
        if os.getpid() != self._process:
            return  # a forked child does not have the threads, and the lock may never be released
        for thread in self._pool:
            thread.is_left = True
        with self._lock:
            self._free.notify_all()
        begun = time.monotonic()
        for thread in self._pool:
            # After Ctrl-C, some threads may not have been started. A scan may be collected in one
            # of its own threads.
            if thread.ident is None or thread is threading.current_thread():
                continue
            while thread.is_alive():
                waited = time.monotonic() - begun
                if waited > (min(LEAVE_SECONDS, at_most) if thread.in_users_code else at_most):
                    break
                thread.join(_POLL_SECONDS)
        _UNDER_WAY.discard(self)
        self._is_over = True

    # -- the consumer's side --------------------------------------------------------------------

    def results(self) -> Iterator[Result]:
        """The results of all streams, in order."""
        while (stream := self._first()) is not None:
            while (done := self.take(stream)) is not None:
                while done:
                    result = first_of(done)
                    self._hand_over(self._size(result))
                    yield result
                    del result

    def put(self, stream: Queue[Task, Result], task: Task) -> None:
        """Add a task to a stream that receives its tasks one by one."""
        with self._lock:
            if stream not in self._open:
                self._open.append(stream)
            stream.waiting.append(task)
            self._wake(1)
        if self not in _UNDER_WAY:
            self.start()

    def take(self, stream: Stream[Task, Result]) -> deque[Result | _Failure] | None:
        """The results of a stream's next task, or None after the last."""
        if os.getpid() != self._process:
            raise RuntimeError("a scan cannot continue in a forked process; start a new scan there")
        inner = isinstance(threading.current_thread(), _Thread)  # a task that runs tasks of its own
        while True:
            raise_if_left()
            with self._lock:
                done = stream.done.pop(stream.taken, None)
                if done is not None:
                    stream.taken += 1
                    self._wake(1)
                    return done
                if stream.exhausted and stream.taken == stream.fetched:
                    self._open.remove(stream)
                    self._wake(self._threads)
                    return None
                self._awaited = stream
                found = self._choose(self._latest) if self._helps else None
                if found is None:
                    self._ready.wait(_POLL_SECONDS if inner else _SIGNALS_SECONDS)
                self._awaited = None
            if found is not None:
                self._latest = found
                self._fetch_and_run(found)

    def _first(self) -> Stream[Task, Result] | None:
        with self._lock:
            if not self._open:
                if not self._unopened:
                    return None
                self._open.append(self._unopened.popleft())
                self._wake(self._threads)
            return self._open[0]

    def _hand_over(self, num_bytes: int) -> None:
        with self._lock:
            self._held_bytes -= num_bytes
            self._wake(1)

    def _wake(self, count: int) -> None:
        # Wake only threads that have something to do, because each competes for the lock and the GIL.
        if self._idle and (self._stopped or self._running < self._threads):
            self._free.notify(min(count, self._idle))

    # -- the threads' side ----------------------------------------------------------------------

    def _serve(self) -> None:
        latest: Stream[Task, Result] | None = None
        while (latest := self._claim(latest)) is not None:
            self._fetch_and_run(latest)

    def _claim(self, latest: Stream[Task, Result] | None) -> Stream[Task, Result] | None:
        """Wait for a stream that has a task, and claim it. None if no work is left."""
        with self._lock:
            while not self._stopped:
                if (stream := self._choose(latest)) is not None:
                    return stream
                if not self._unopened and all(s.exhausted for s in self._open):
                    return None
                self._idle += 1
                self._free.wait()
                self._idle -= 1
            return None

    # Complexity: the whole rule for which thread takes which stream.
    def _choose(self, latest: Stream[Task, Result] | None) -> Stream[Task, Result] | None:
        """Claim a stream that has a task. Prefer the first stream or, if its next result is already being made, the
        thread's `latest` stream, whose data is in the core's caches."""
        if self._running >= self._threads:
            return None
        # Running tasks need memory, too.
        need = self._largest_bytes if self._need is None else self._need()
        budget = self._budget()
        room = self._held_bytes + (self._running + 1) * need <= budget
        chosen: Stream[Task, Result] | None = None
        for place, stream in enumerate(self._open):
            if stream.busy or not stream.has_task:
                continue
            ahead = stream.fetched - stream.taken
            # The consumer's next result may be made even if it exceeds the budget. If the budget is minus infinity,
            # it is made only when the consumer asks for it.
            is_asked = budget != -math.inf or self._awaited is not None
            if place == 0 and not ahead and is_asked:
                chosen = stream
                break
            if room and ahead < 8 * self._threads + 8:
                if stream is latest:
                    chosen = stream
                    break
                chosen = chosen or stream
        if chosen is None and self._unopened and room and len(self._open) <= self._threads:
            chosen = self._unopened.popleft()
            self._open.append(chosen)
        if chosen is not None:
            chosen.busy = True
            self._running += 1  # fetching counts as running, because it may be most of the work
        return chosen

    def _fetch_and_run(self, stream: Stream[Task, Result]) -> None:
        number = stream.fetched
        try:
            task = stream.fetch()
        except BaseException as error:
            self._release(stream, is_last=True, has_task=True)
            self._deliver(stream, number, deque([_Failure(error)]), 0)
            _raise_interrupt(error)
            return
        self._release(stream, is_last=task is None, has_task=task is not None)
        if task is not None:
            self._run_task(stream, number, task)

    def _release(self, stream: Stream[Task, Result], *, is_last: bool, has_task: bool) -> None:
        """Allow the next thread to fetch from a stream."""
        with self._lock:
            stream.busy = False
            stream.exhausted = is_last
            stream.fetched += has_task
            if not has_task:
                self._running -= 1
            if is_last or self._helps:
                self._ready.notify()
            self._wake(self._threads if is_last else 1)

    def _run_task(self, stream: Stream[Task, Result], number: int, task: Task) -> None:
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
        stream: Stream[Task, Result],
        number: int,
        done: deque[Result | _Failure],
        held_bytes: int,
    ) -> None:
        with self._lock:
            stream.done[number] = done
            self._held_bytes += held_bytes
            self._running -= 1
            self._largest_bytes = max(self._largest_bytes, held_bytes)
            is_next = stream is self._awaited and number == stream.taken
            if is_next or self._helps:
                self._ready.notify()
