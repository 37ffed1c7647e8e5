"""The random operations of a function, as TensorFlow numbers them when it traces the function.

TensorFlow traces a function given to `map` once. Each random operation of the trace has a sequence of its own, which
goes on from element to element and begins anew with each iterator. An operation without a seed gets its number in the
trace as its seed. Here the function runs as Python for each element, so the n-th random operation of a call stands for
the n-th of the trace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


class Sequences:
    """The positions in their sequences of the random operations of one function, and of functions inside it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[Any, int] = {}
        self._inner: dict[Any, Sequences] = {}

    def advance(self, operation: Any, blocks: int) -> int:
        """The position of an operation, which then moves by a number of blocks."""
        with self._lock:
            block = self._at.get(operation, 0)
            self._at[operation] = block + blocks
        return block

    def inner(self, operation: Any) -> Sequences:
        """The sequences of a function that this function gives to a dataset."""
        with self._lock:
            return self._inner.setdefault(operation, Sequences())


class Call:
    """One call of a traced function.

    Attributes: seed (the program's seed when the function was traced), sequences, and is_trial (whether the call only
    finds out what the function does).
    """

    __slots__ = ("_operations", "_unseeded", "is_trial", "seed", "sequences")

    def __init__(self, seed: int | None, sequences: Sequences, is_trial: bool) -> None:
        self.seed = seed
        self.is_trial = is_trial
        self.sequences = sequences
        self._operations = self._unseeded = 0

    def operation(self) -> Any:
        """A name for the next operation, the same in each call."""
        self._operations += 1
        return self._operations

    def own_seed(self) -> int:
        """The seed of the next operation that has none."""
        self._unseeded += 1
        return self._unseeded - 1


class Opened:
    """What the functions of one iterator go on with, when a part of the dataset is opened again."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], Any] = {}
        self._times: dict[int, int] = {}

    def begin(self) -> None:
        """Open the dataset again."""
        self._times = {}

    def part(self, owner: object, make: Callable[[], Any]) -> Any:
        """The part of a function or step, made when it is opened for the first time. A step that occurs twice in the
        dataset has two parts."""
        time = self._times.get(id(owner), 0)
        self._times[id(owner)] = time + 1
        return self._parts.setdefault((id(owner), time), make())


class _State(threading.local):
    call: Call | None = None
    opened: Opened | None = None


_STATE = _State()


def current() -> Call | None:
    """The call of a traced function that is running in this thread, if any."""
    return _STATE.call


class Function:
    """A function that each iterator opens for itself."""

    def opened(self) -> Callable[..., Any]:
        """The function for one iterator."""
        raise NotImplementedError


class Traced(Function):
    """A function as TensorFlow traces it. A call of the object itself is a trial.

    Args:
        function: the user's function.
        seed (int): the program's seed, or None.
    """

    def __init__(self, function: Callable[..., Any], seed: int | None) -> None:
        self.function = function
        self.seed = seed
        call = _STATE.call
        self._sequences = None if call is None else call.sequences.inner(call.operation())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(Sequences(), args, kwargs, is_trial=True)

    def opened(self) -> Callable[..., Any]:
        """The function for one iterator, in which the sequences go on from call to call."""
        sequences = self._sequences or part(self, Sequences)
        return lambda *args, **kwargs: self._run(sequences, args, kwargs)

    def _run(self, sequences: Sequences, args: Any, kwargs: Any, *, is_trial: bool = False) -> Any:
        before, _STATE.call = _STATE.call, Call(self.seed, sequences, is_trial)
        try:
            return self.function(*args, **kwargs)
        finally:
            _STATE.call = before


def opened(function: Any) -> Any:
    """A function for one iterator, if it is traced; other functions are returned unchanged."""
    return function.opened() if isinstance(function, Function) else function


def part(owner: object, make: Callable[[], Any]) -> Any:
    """The part of a function or step in the iterator that is being opened."""
    return make() if _STATE.opened is None else _STATE.opened.part(owner, make)


@contextmanager
def opening(iterator: Opened) -> Generator[None]:
    """Datasets opened in this context belong to an iterator, or to a part of it that is opened again."""
    iterator.begin()
    before, _STATE.opened = _STATE.opened, iterator
    try:
        yield
    finally:
        _STATE.opened = before
