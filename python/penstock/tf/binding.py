"""Functions bound to the values that their names have now.

TensorFlow traces a function when `map` is called: loop variables and globals keep the values of that moment. Here
functions run later, so they get copies of the cells and globals that they read. Names that a function itself assigns
(`nonlocal`, `global`) stay shared.
"""

from __future__ import annotations

import builtins
import dis
import functools
import sys
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

_WRITES = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF", "DELETE_DEREF"}


def bound(function: Any) -> Any:
    """A copy of a function that keeps the current values of its names. Other callables are returned unchanged.

    Example:
        >>> from penstock.tf.binding import bound
        >>> functions = [lambda: i for i in range(2)]
        >>> late, now = functions[0](), [bound(lambda: i)() for i in range(2)]
        >>> late, now
        (1, [0, 1])
    """
    return _bound(function, {})


def _bound(function: Any, done: dict[int, Any]) -> Any:
    if id(function) in done:
        return done[id(function)]
    if isinstance(function, functools.partial):
        inner = _bound(function.func, done)
        return functools.partial(inner, *function.args, **function.keywords)
    if isinstance(function, MethodType) and isinstance(function.__func__, FunctionType):
        return MethodType(_bound(function.__func__, done), function.__self__)
    if not isinstance(function, FunctionType) or _is_installed(function):
        return function
    return _copy(function, done)


def _is_installed(function: FunctionType) -> bool:
    """Whether a function belongs to a library, whose globals do not change."""
    module = sys.modules.get(function.__module__ or "")
    path = getattr(module, "__file__", None) or ""
    return "site-packages" in path or (function.__module__ or "").startswith("penstock.")


def _copy(function: FunctionType, done: dict[int, Any]) -> FunctionType:
    code = function.__code__
    names, written = _names(code)
    cells = tuple(
        cell if name in written else CellType()
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True)
    )
    scope = function.__globals__
    known = names & scope.keys()
    own = _Globals(scope) if known and not written & scope.keys() else scope
    made = FunctionType(code, own, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, dict(function.__dict__)  # type: ignore[assignment]
    made.__module__, made.__qualname__ = function.__module__, function.__qualname__
    done[id(function)] = made
    if own is not scope:
        own.update({name: _bound(scope[name], done) for name in known})
    for cell, old, name in zip(cells, function.__closure__ or (), code.co_freevars, strict=True):
        if name not in written and not _is_empty(old):
            cell.cell_contents = _bound(old.cell_contents, done)
    return made


class _Globals(dict[str, Any]):
    """The globals of a bound function: its own values, and all others of the module."""

    def __init__(self, module: dict[str, Any]) -> None:
        super().__init__({"__builtins__": module.get("__builtins__", builtins)})
        self._module = module

    def __missing__(self, name: str) -> Any:
        return self._module[name]


def _is_empty(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 -- it raises where there is nothing
    except ValueError:
        return True
    return False


@functools.lru_cache(4096)
def _names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """The globals that a function reads and does not write, and all names that it writes."""
    written = frozenset(_written(code))
    return frozenset(_read(code)) - written, written


def _read(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _read(constant)


def _written(code: CodeType) -> Iterator[str]:
    own = {*code.co_cellvars}
    for step in dis.get_instructions(code):
        if step.opname in _WRITES and step.argval not in own:
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from (name for name in _written(constant) if name not in own)
