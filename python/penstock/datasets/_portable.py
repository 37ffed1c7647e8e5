"""Carries the functions of conditions, and the numbers of chosen records, to other processes."""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from penstock.errors import UnsupportedError

Numbers = range | tuple[int, bytes] | np.ndarray
"""The numbers of records; as a range if they are one, or as their count and a bit for each record."""


class _ByValue:
    """A function that pickles as its code."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._data,)


def portable(where: Any) -> Any:
    """A condition as an object that pickles. pickle carries functions by name, so those without one are carried by
    cloudpickle, which comes with Ray, Dask and Spark."""
    if not isinstance(where, FunctionType) or "<" not in where.__qualname__:
        return where
    if (module := _cloudpickle()) is None:
        raise UnsupportedError(
            "pickle cannot carry a condition that is a lambda, or a function inside a function, to another process",
            hint='a text such as "label == 3", or a function of a module, or pip install cloudpickle',
        )
    return _ByValue(module.dumps(where))


def _cloudpickle() -> ModuleType | None:
    try:
        return import_module("cloudpickle")
    except ImportError:
        named = (name for name in sys.modules if name.endswith(".cloudpickle"))
        return next((sys.modules[name] for name in named), None)


def packed(numbers: np.ndarray) -> Numbers:
    """Ascending numbers in less space, if they are dense."""
    if len(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(int(numbers[0]), int(numbers[-1]) + 1)
    if not len(numbers) or numbers[-1] // 8 >= numbers.nbytes:
        return numbers
    bits = np.zeros(int(numbers[-1]) + 1, bool)
    bits[numbers] = True
    return len(bits), np.packbits(bits).tobytes()


def unpacked(numbers: Numbers) -> np.ndarray:
    """What `packed` was given."""
    if isinstance(numbers, np.ndarray):
        return numbers
    if isinstance(numbers, range):
        return np.arange(numbers.start, numbers.stop)
    bits = np.unpackbits(np.frombuffer(numbers[1], np.uint8), count=numbers[0])
    return np.flatnonzero(bits)
