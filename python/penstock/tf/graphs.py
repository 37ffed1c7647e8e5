"""The random operations of a function, as TensorFlow numbers them when it traces the function.

TensorFlow traces a function given to `map` once. Each random operation of the trace has a sequence of its own, which
goes on from element to element and begins anew with each iterator. An operation without a seed gets its number in the
trace as its seed. Here the function runs as Python for each element, so the n-th random operation of a call stands for
the n-th of the trace. Branches of an `if` on a tensor, and bodies of `tf.cond` and `tf.map_fn`, are graphs of their own,
whose operations are counted from 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from inspect import currentframe
from itertools import repeat
from types import CodeType, FrameType
from typing import Any

from penstock.tf.branches import around


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

    def __init__(self, seed: int | None, sequences: Sequences, is_trial: bool) -> None:
        self.seed = seed
        self.is_trial = is_trial
        self.sequences = sequences
        self._numbers: dict[Any, int] = {}
        self._inside: tuple[Any, ...] = ()
        self._decided: dict[tuple[int, int], int] = {}
        self._deciding: set[int] = set()

    def operation(self, seed: int | None) -> tuple[Any, int]:
        """A name for the next operation, the same in each call, and its seed: without a seed of its own, its number in
        its graph."""
        graph = self._graph()
        if seed is None:
            seed = self._number(graph, "seed")
        return (graph, self._number(graph, "operation")), seed

    def _number(self, graph: Any, kind: Any) -> int:
        number = self._numbers.get((graph, kind), 0)
        self._numbers[graph, kind] = number + 1
        return number

    def decide(self, asked: FrameType | None) -> None:
        """Note that the caller of a frame asks whether a tensor is true. If this is the test of an `if`, its branches are
        graphs."""
        frame = None if asked is None else asked.f_back
        if frame is None:
            return
        found = around(frame.f_code, frame.f_lasti).tested
        if found is None:
            return
        branching, is_first = found
        if is_first or (id(frame), branching) not in self._decided:
            number = self._number(self._graph(), branching)
            self._decided[id(frame), branching] = number
            self._deciding.add(id(frame))

    def _graph(self) -> Any:
        """The graph that TensorFlow traces the running code into."""
        if not self._decided and not _FUNCTIONS:
            return self._inside
        frame, outwards = currentframe(), list[Any]()
        while frame is not None and frame.f_code is not _RUNS[0]:
            if id(frame) in self._deciding:
                outwards += self._branches(frame)
            caller = frame.f_back
            if caller is not None and frame.f_code in _FUNCTIONS:
                outwards.append(caller.f_lasti)
            frame = caller
        return (*self._inside, *reversed(outwards))

    def _branches(self, frame: FrameType) -> list[Any]:
        """The branches around the running instruction of a frame, from the innermost."""
        return [
            (self._decided[id(frame), branching], branching, side)
            for branching, side in reversed(around(frame.f_code, frame.f_lasti).branches)
            if (id(frame), branching) in self._decided
        ]

    @contextmanager
    def inside(self, part: Any) -> Generator[None]:
        """Operations in this context are in a graph of their own, such as a branch or the body of a loop."""
        before = self._inside
        self._inside = (*self._graph(), part)
        try:
            yield
        finally:
            self._inside = before

    def part(self, kind: str) -> Any:
        """A name for a graph inside the current one, for `inside`."""
        return kind, self._number(self._graph(), kind)

    def begin_again(self, part: Any) -> None:
        """Begin another round of a loop: its operations are those of the round before."""
        inside = (*self._graph(), part)
        self._numbers = {
            (graph, kind): number
            for (graph, kind), number in self._numbers.items()
            if graph[: len(inside)] != inside
        }


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


class _Beginning:
    """A call in which nothing has asked for the `Call` yet. Most functions have no random operations."""

    __slots__ = ("is_trial", "seed", "sequences")

    def __init__(self, seed: int | None, sequences: Sequences, is_trial: bool = False) -> None:
        self.seed, self.sequences, self.is_trial = seed, sequences, is_trial


class _State(threading.local):
    call: Call | _Beginning | None = None
    opened: Opened | None = None


_STATE = _State()


def current() -> Call | None:
    """The call of a traced function that is running in this thread, if any."""
    call = _STATE.call
    if type(call) is _Beginning:
        _STATE.call = call = Call(call.seed, call.sequences, call.is_trial)
    return call  # type: ignore[return-value]


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
        call = current()
        self._sequences = None if call is None else call.sequences.inner(call.operation(0)[0])

    def __call__(self, *args: Any) -> Any:
        return self._begun(Sequences(), is_trial=True)(*args)

    def opened(self) -> Callable[..., Any]:
        """The function for one iterator, in which the sequences go on from call to call."""
        return self._begun(self._sequences or part(self, Sequences))

    def _begun(self, sequences: Sequences, *, is_trial: bool = False) -> Callable[..., Any]:
        function, state = self.function, _STATE
        beginning = _Beginning(self.seed, sequences, is_trial)

        def run(*args: Any) -> Any:
            before, state.call = state.call, beginning
            try:
                return function(*args)
            finally:
                state.call = before

        if not _RUNS:
            _RUNS.append(run.__code__)
        return run


_RUNS: list[CodeType] = []
"""The code that calls traced functions."""
_FUNCTIONS: set[CodeType] = set()
"""The code of functions that are graphs of their own, wherever they are called."""


def as_graph(function: Any) -> None:
    """Trace a function as a graph of its own: `tf.function`."""
    code = getattr(function, "__code__", None)
    if code is not None:
        _FUNCTIONS.add(code)


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


@contextmanager
def inside(kind: str) -> Generator[None]:
    """Random operations in this context are in a graph of their own."""
    call = current()
    if call is None:
        yield
        return
    with call.inside(call.part(kind)):
        yield


def rounds(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The body of a loop, for one round after the other."""
    call = current()
    if call is None:
        yield from repeat(function)
        return
    part = call.part("loop")

    def body(*args: Any) -> Any:
        call.begin_again(part)
        with call.inside(part):
            return function(*args)

    yield from repeat(body)
