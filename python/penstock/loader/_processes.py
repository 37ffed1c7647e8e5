"""Worker processes for user functions that hold the GIL.

A thread of the loader takes a free worker, sends it a batch through a socket, and waits for the result. Only `map`
and `map_records` run in the workers; the threads do the rest.

A batch is sent as a pickle (protocol 5) followed by its large buffers, which are not copied again. Shared memory and
files are not used, so a killed process leaves nothing behind. Workers are spawned. A fork would copy the locks of the
loader's threads in whatever state they are, and a forkserver is one more process to manage and saves only 0.2 seconds
once. Every worker has a thread that reads from a second socket, on which its parent never sends anything. When the
parent ends, that read returns, and the worker exits whatever the function is doing.

Libraries such as torch use one thread in a worker. Several workers with a thread for each core each would slow each
other down, many times on large machines.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from penstock.loader._user_code import UserCode

GRACE_SECONDS = 0.3
"""How long a function may still run after the loop was left, before its process is killed."""
_LENGTH = 8


class WorkerTraceback(Exception):
    """The cause of an error that a worker raised. Its text is the traceback from the worker."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Workers:
    """Processes that call one function, each on one batch at a time.

    A worker starts when it is first needed and serves all epochs. It ends when this object is closed or collected, or
    when the parent process ends. A forked or unpickled copy of this object starts new workers.
    """

    def __init__(self, function: Callable[..., Any], count: int) -> None:
        if count < 1:
            raise ValueError(f"processes must be at least 1, not {count}")
        try:
            self._function = pickle.dumps(function)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"worker processes cannot import the function: {error};"
                " define it with def at the top of a module, not inside a function or as a lambda"
            ) from None
        self.count = count
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._free: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(self.count):
            self._free.put(None)  # a worker not yet started
        self._running: set[_Worker] = set()
        self._finalizer = weakref.finalize(self, _end_all, self._running, self._process)

    def __reduce__(self) -> tuple[Any, ...]:
        return _workers, (self._function, self.count)

    def close(self) -> None:
        """End all workers. The next `call` starts new ones."""
        _end_all(self._running, self._process)

    @property
    def pids(self) -> list[int]:
        return sorted(worker.pid for worker in self._running)

    def call(self, left: threading.Event, *arguments: Any) -> Any:
        """Call the function in a worker, and return its result or raise its error. `left` is set when the loop is left.
        RuntimeError: the worker ended without an answer, or the loop was left."""
        if os.getpid() != self._process:
            self._finalizer.detach()  # the workers belong to the parent
            self._begin()
        worker = self._free.get()
        try:
            if worker is None or not worker.is_usable:
                with self._lock:  # starting a process by spawn is not thread-safe
                    worker = _Worker(self._function)
                    self._running.add(worker)
            return worker.call(arguments, left)
        finally:
            if worker is not None and not worker.is_usable:
                self._running.discard(worker)
                worker.end()
                worker = None
            self._free.put(worker)


def _workers(function: bytes, count: int) -> Workers:
    return Workers(pickle.loads(function), count)  # noqa: S301  made by Workers


def _end_all(running: set[_Worker], process: int) -> None:
    if os.getpid() == process:
        for worker in list(running):
            worker.end()
        running.clear()


class _Worker:
    def __init__(self, function: bytes) -> None:
        from multiprocessing import current_process, get_context

        if current_process().daemon:
            raise RuntimeError(
                "processes= cannot start processes inside a daemonic process, such as a worker of"
                " torch's DataLoader: give processes=0 here, or iterate over the loader itself"
            )
        mine, its = socket.socketpair()
        life, its_life = socket.socketpair()
        context = get_context("spawn")
        try:
            process = context.Process(
                target=_serve, args=(its, its_life, function), name="penstock-map", daemon=True
            )
            process.start()
        except BaseException:
            mine.close()
            life.close()
            raise
        finally:
            its.close()
            its_life.close()
        self._process: BaseProcess = process
        self._socket = mine
        self._life = life
        self.pid = process.pid or 0
        self.is_usable = True
        self._has_answered = False

    def call(self, arguments: tuple[Any, ...], left: threading.Event) -> Any:
        try:
            try:
                _send(self._socket, arguments)
            except (BrokenPipeError, ConnectionError):
                raise EOFError from None
            self._wait(left)
            is_good, result, text = _receive(self._socket)
            self._has_answered = True
        except (EOFError, ConnectionError):
            self.is_usable = False
            raise RuntimeError(self._how_it_ended()) from None
        except BaseException:
            self.is_usable = False  # the stream may be in the middle of a message
            raise
        if is_good:
            return result
        raise result from WorkerTraceback(text)

    def _wait(self, left: threading.Event) -> None:
        """Wait for an answer, but only GRACE_SECONDS once the loop is left."""
        import select

        given_up: float | None = None
        while not select.select([self._socket], [], [], 0.1)[0]:
            if not left.is_set():
                continue
            given_up = given_up or time.monotonic() + GRACE_SECONDS
            if time.monotonic() > given_up:
                raise RuntimeError("the loop was left before the function returned")

    def _how_it_ended(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        name = f"the worker process {self.pid} of map"
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                killed = f"{name} was ended by {signal.Signals(-code).name}"
                return killed + (_MEMORY if code == -signal.SIGKILL else "")
        if code and not self._has_answered:
            return f"{name} ended with status {code} before its first batch; {_STARTING}"
        return f"{name} ended with status {code} in the middle of a batch"

    def end(self) -> None:
        self.is_usable = False
        self._life.close()
        self._socket.close()
        with contextlib.suppress(Exception):
            self._process.kill()
            self._process.join(5)


_MEMORY = "; unless somebody killed it, memory ran out: give fewer processes= or smaller batches"
_STARTING = (
    "its error is on stderr: the worker must be able to import the function, and a script needs"
    ' if __name__ == "__main__": around its code'
)
_NOT_STARTED = 3


# -- the worker's side ----------------------------------------------------------------------------


def _serve(work: socket.socket, life: socket.socket, function: bytes) -> None:
    """Process batches until the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with, args=(life,), daemon=True).start()
    _use_one_thread()
    try:
        call = pickle.loads(function)  # noqa: S301  made by the parent
    except BaseException:  # noqa: BLE001  the exit status reports the error to the parent
        traceback.print_exc()
        os._exit(_NOT_STARTED)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            arguments = _receive(work)
            try:
                answer = (True, call(*arguments), "")
            except BaseException as error:  # noqa: BLE001  raised again in the parent
                answer = (False, _picklable(error), traceback.format_exc())
            del arguments
            try:
                _send(work, answer)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                reason = TypeError(f"the value that map returned cannot be pickled: {error}")
                _send(work, (False, reason, traceback.format_exc()))
            del answer


def _use_one_thread() -> None:
    """Let libraries use one thread, unless the user decided with OMP_NUM_THREADS."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # for libraries that the function loads
    torch = sys.modules.get("torch")  # loaded by the user's script, before this
    if torch is not None:
        torch.set_num_threads(1)


def _end_with(life: socket.socket) -> None:
    with contextlib.suppress(OSError):
        life.recv(1)
    os._exit(0)


def _picklable(error: BaseException) -> BaseException:
    """Return the error if it can be pickled, otherwise a RuntimeError with its message."""
    try:
        again = pickle.loads(pickle.dumps(error))  # noqa: S301  made here
    except Exception:  # noqa: BLE001  whatever its pickling does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return again if isinstance(error, Exception) else RuntimeError(repr(error))


def workers_for(user: UserCode, count: int) -> Workers | None:
    """Return that many workers for the user's functions, or None if there is nothing to run in them."""
    return Workers(user, count) if count and user.is_any else None


# -- messages -------------------------------------------------------------------------------------


def _send(to: socket.socket, message: Any) -> None:
    """Send the number of parts, the length of each, and the parts: the pickle, then its buffers."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    sizes = b"".join(n.to_bytes(_LENGTH, "little") for n in (len(parts), *map(len, parts)))
    to.sendall(sizes)
    for part in parts:
        if len(part):
            to.sendall(part)


def _receive(of: socket.socket) -> Any:
    count = int.from_bytes(_read(of, _LENGTH), "little")
    sizes = _read(of, _LENGTH * count)
    lengths = [
        int.from_bytes(sizes[at : at + _LENGTH], "little") for at in range(0, len(sizes), _LENGTH)
    ]
    head, *buffers = [_read(of, length) for length in lengths]
    # Arrays share the memory of these bytearrays, and so are writable.
    return pickle.loads(head, buffers=buffers)  # noqa: S301  from the other end of a socketpair


def _read(of: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        got = of.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return data
