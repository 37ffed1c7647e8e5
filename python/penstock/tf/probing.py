"""Placeholder values, with which a user's function is called to learn the shapes and dtypes of its results.

TensorFlow traces a function to learn these. Here the function runs three times, and each run has another value for
every unknown size (5 and more, 97 and less, 0). Sizes of its results that differ between runs are unknown, too. Only
operations whose result depends on what strings contain, or that would refuse a placeholder, ask `is_on`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from penstock.tf.dtypes import as_dtype

RUNS = 3
_NUMBERS = 1, 3, 0
_MOST_DECISIONS = 1000
TEXT = b"0"
"""The placeholder for a string."""


P = ParamSpec("P")
R = TypeVar("R")


class _State(threading.local):
    run: int | None = None
    decisions = 0
    is_recording = False


_STATE = _State()


class NoPlaceholder(Exception):
    """A function cannot run with placeholders."""


class NotRecorded(BaseException):
    """Raised while a function is recorded, if it does more than choose and parse. It is a BaseException, so that
    programs do not catch it."""


@contextmanager
def recording() -> Generator[None]:
    """One call in this context stands for all calls of a function, so it may not draw random numbers."""
    before, _STATE.is_recording = _STATE.is_recording, True
    try:
        yield
    finally:
        _STATE.is_recording = before


def refuse_recording() -> None:
    """Raise NotRecorded while a function is recorded: the next call may have another result."""
    if _STATE.is_recording:
        raise NotRecorded


@contextmanager
def probing(run: int) -> Generator[None]:
    """Operations in this context get placeholders, those of the run with this number."""
    before = _STATE.run, _STATE.decisions
    _STATE.run, _STATE.decisions = run, 0
    try:
        yield
    finally:
        _STATE.run, _STATE.decisions = before


def is_on() -> bool:
    """Whether values are placeholders."""
    return _STATE.run is not None


def decision() -> bool:
    """The truth value of a placeholder in an `if`: False in the second run, True in the others.

    Raises:
        NoPlaceholder: this was called so often that the function may contain an endless loop.
    """
    _STATE.decisions += 1
    if _STATE.decisions > _MOST_DECISIONS:
        raise NoPlaceholder
    return _STATE.run != 1


def size(axis: int = 0) -> int:
    """The size of a dimension of unknown size."""
    # Neither the sizes nor their proportions are the same in two runs.
    return (5 + axis, max(97 - 29 * axis, 10), 0)[_STATE.run or 0]


def sizes(shape: Any) -> tuple[int, ...]:
    """A shape with unknown sizes replaced. An unknown rank is replaced by another rank in each run."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return tuple(size(axis) for axis in range(1 + (_STATE.run or 0)))
    return tuple(size(axis) if s is None else int(s) for axis, s in enumerate(shape))


def words(count: int) -> np.ndarray[Any, Any]:
    """Placeholders for random 32-bit numbers: the least, or the greatest in the second run."""
    return np.full(count, 0xFFFFFFFF if _STATE.run == 1 else 0, np.uint32)


def array(shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
    """A placeholder of a shape, in which None is an unknown size."""
    kind, wanted = as_dtype(dtype), sizes(shape)
    if kind.name == "string":
        made = np.empty(wanted, object)
        made[...] = TEXT
        return made
    if wanted and _STATE.run == 1 and kind.kind != "b":
        # Different values, so that operations that search for equal values find none.
        return (np.arange(int(np.prod(wanted))) % 100).astype(kind.dtype).reshape(wanted)
    if kind.name == "bool":
        return np.full(wanted, _STATE.run != 1)
    return np.full(wanted, _NUMBERS[_STATE.run or 0], kind.dtype)


def instead(placeholder: Callable[..., Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate an operation, so that for placeholders this other function is called instead, with the same
    arguments."""

    def decorate(operation: Callable[P, R]) -> Callable[P, R]:
        @wraps(operation)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            if _STATE.run is None:
                return operation(*args, **kwargs)
            return placeholder(*args, **kwargs)

        return run

    return decorate


def give_shape(placeholder: np.ndarray[Any, Any], shape: Any) -> None:
    """Give a placeholder another shape, in place."""
    current = np.ndarray.shape.__get__(placeholder)  # type: ignore[attr-defined]
    if len(current) == len(shape):
        shape = [c if s is None else s for c, s in zip(current, shape, strict=True)]
    wanted = sizes(shape)
    if wanted == current:
        return
    made = array(wanted, placeholder.dtype)
    raw: Any = made.ravel().tolist() if made.dtype == object else made.tobytes()
    state: Any = (1, wanted, made.dtype, False, raw)
    placeholder.__setstate__(state)


def part(placeholder: np.ndarray[Any, Any], key: Any) -> np.ndarray[Any, Any]:
    """A part of a placeholder. Indices beyond its end are allowed, because real tensors may be larger."""
    sizes = placeholder.shape
    # One dimension is enlarged if that is enough, because the others may have known sizes.
    for axis in range(len(sizes)):
        try:
            return _part(
                placeholder, [max(n, 64) if axis == i else n for i, n in enumerate(sizes)], key
            )
        except IndexError:
            continue
    return _part(placeholder, [max(n, 64) for n in sizes], key)


def _part(placeholder: np.ndarray[Any, Any], shape: list[int], key: Any) -> np.ndarray[Any, Any]:
    return np.asarray(np.resize(placeholder, shape)[key])
