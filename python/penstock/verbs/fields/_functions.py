"""What identifies a user's function between two runs of a job: its name, and a digest of its code."""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def described(function: Any) -> str:
    """Return the name of a function and a digest of its code, so that a changed function is another one. The digest
    also covers defaults, and numbers, texts and functions that it uses from around it, but no other objects."""
    module = getattr(function, "__module__", "")
    name = f"{module}.{getattr(function, '__qualname__', type(function).__name__)}"
    text = "\0".join(_facts(function, set()))
    return f"{name} {hashlib.blake2b(text.encode(errors='replace'), digest_size=8).hexdigest()}"


def _facts(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield texts that differ if the value does. Objects that may be large, or differ in each process, are left out."""
    if isinstance(value, CodeType):
        yield from _facts_of_code(value, seen)
    elif isinstance(value, (*_PLAIN, range)) or value is Ellipsis:
        yield repr(value)
    elif isinstance(value, (tuple, list)):
        for part in cast("tuple[Any, ...]", value):
            yield from _facts(part, seen)
    elif isinstance(value, frozenset):
        # Its order differs in each process.
        yield repr(sorted(map(repr, cast("frozenset[Any]", value))))
    elif id(value) not in seen:
        seen.add(id(value))
        yield from _facts_of_function(value, seen)


def _facts_of_function(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, partial):
        whole = cast("partial[Any]", value)
        yield from _facts((whole.func, whole.args, *sorted(whole.keywords.items())), seen)
    elif isinstance(value, MethodType):
        yield from _facts(value.__func__, seen)
    elif isinstance(value, FunctionType):
        defaults = sorted((value.__kwdefaults__ or {}).items())
        yield from _facts((value.__code__, value.__defaults__ or (), *defaults), seen)
        yield from _facts_around(value, seen)
    else:
        yield f"{type(value).__module__}.{type(value).__qualname__}"
        call = vars(type(value)).get("__call__")
        if isinstance(call, FunctionType):
            yield from _facts(call, seen)


def _facts_of_code(code: CodeType, seen: set[int]) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    yield from _facts(code.co_consts, seen)


def _facts_around(function: FunctionType, seen: set[int]) -> Iterator[str]:
    """Yield facts of the variables around a function that it uses and does not assign."""
    codes = list(_codes(function.__code__))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around = {name: cell.cell_contents for name, cell in cells if _is_set(cell)}
    names = {name for code in codes for name in code.co_names} & function.__globals__.keys()
    around |= {name: function.__globals__[name] for name in names}
    assigned = {
        step.argval
        for code in codes
        for step in dis.get_instructions(code)
        if step.opname in ("STORE_DEREF", "STORE_GLOBAL")
    }
    for name, value in sorted(around.items(), key=lambda one: one[0]):
        is_mine = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if name not in assigned and (is_mine or isinstance(value, _PLAIN)):
            yield name
            yield from _facts(value, seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and that of all functions in it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
