"""Recognises functions that only parse, by calling them once with placeholders.

A function given to `Dataset.map` is called with a `Recorded` in place of each value. `parse_single_example` and
`parse_example` accept it and record the call. Any other use of it shows that the function needs the values, and then
it is called record by record. So is a function that draws random numbers, because another call may choose otherwise. A function that returns only placeholders does nothing but choose and parse, so one
call of a kernel can parse whole chunks of records.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.tf.features import in_order
from penstock.tf.nest import flatten, pack_sequence_as
from penstock.tf.probing import NotRecorded, recording


@dataclass
class Parsing:
    """One call of a parser: its source and features."""

    source: Recorded
    features: dict[str, Any]

    @property
    def single(self) -> bool:
        """Whether records are parsed one by one."""
        return not self.source.is_batch


@dataclass
class _Log:
    """The uses of the placeholders of one call."""

    is_used: bool = False
    parsings: list[Parsing] = field(default_factory=list)


class Recorded:
    """A placeholder for one value: a leaf of the input, or of a parser's result.

    Attributes: leaf (int, its number in the input) or parsing and key (where it was parsed), and
    is_batch: whether it stands for a batch of strings or for one; None if it is not a string that could be parsed.
    """

    __slots__ = ("_log", "is_batch", "key", "leaf", "parsing")

    def __init__(
        self,
        log: _Log,
        leaf: int = 0,
        *,
        is_batch: bool | None = None,
        parsing: Parsing | None = None,
        key: str | None = None,
    ) -> None:
        self._log = log
        self.leaf = leaf
        self.is_batch = is_batch
        self.parsing = parsing
        self.key = key

    def parse(self, features: Mapping[str, Any]) -> dict[str, Recorded]:
        """Record that this serialized record, or batch of records, is parsed with these features, and return
        placeholders for the results."""
        if self.is_batch is None:
            self.give_up()
        parsing = Parsing(self, dict(features))
        self._log.parsings.append(parsing)
        return {key: Recorded(self._log, parsing=parsing, key=key) for key in in_order(features)}

    def give_up(self, *_: Any, **__: Any) -> Any:
        """Record that a value was needed."""
        self._log.is_used = True
        raise NotRecorded

    def __getattr__(self, name: str) -> Any:
        return self.give_up()

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return self.give_up()


def _refuse(self: Recorded, *args: Any, **kwargs: Any) -> Any:
    return self.give_up()


for _name in [
    "abs",
    "add",
    "and",
    "array",
    "array_function",
    "bool",
    "bytes",
    "call",
    "complex",
    "contains",
    "delitem",
    "divmod",
    "enter",
    "eq",
    "exit",
    "float",
    "floordiv",
    "format",
    "ge",
    "getitem",
    "gt",
    "index",
    "int",
    "invert",
    "iter",
    "le",
    "len",
    "lshift",
    "lt",
    "matmul",
    "mod",
    "mul",
    "ne",
    "neg",
    "next",
    "or",
    "pos",
    "pow",
    "radd",
    "rand",
    "rdivmod",
    "repr",
    "reversed",
    "rfloordiv",
    "rlshift",
    "rmatmul",
    "rmod",
    "rmul",
    "ror",
    "round",
    "rpow",
    "rrshift",
    "rshift",
    "rsub",
    "rtruediv",
    "rxor",
    "setitem",
    "str",
    "sub",
    "truediv",
    "xor",
]:
    setattr(Recorded, f"__{_name}__", _refuse)


@dataclass
class Recording:
    """A function that only chooses and parses: its result, with placeholders at all leaves."""

    result: Any
    leaves: list[Recorded]
    parsings: list[Parsing]


def record(
    function: Callable[..., Any],
    structure: Any,
    call: Callable[[Callable[..., Any], Any], Any],
    batched: list[bool | None],
) -> Recording | None:
    """Call a function with placeholders.

    Args:
        function: the user's function.
        structure: the structure of an element.
        call: calls the function with an element.
        batched: for each leaf, whether it is a batch of strings; None if it is not a string.

    Returns:
        The recording, or None if the function needs values.
    """
    log, drawn = _Log(), _drawn()
    leaves = [Recorded(log, leaf, is_batch=each) for leaf, each in enumerate(batched)]
    try:
        with recording():
            result = call(function, pack_sequence_as(structure, leaves, lists=False))
    except NotRecorded:
        return None
    except Exception:
        # If an error is not due to the placeholders, it is raised again with values.
        return None
    if isinstance(result, list):
        result = tuple(result)
    flat = flatten(result, lists=False)
    if (
        log.is_used
        or drawn != _drawn()
        or not flat
        or not all(type(leaf) is Recorded for leaf in flat)
    ):
        return None
    return Recording(result, flat, log.parsings)


def _drawn() -> tuple[Any, ...]:
    """The states of the random generators of Python and NumPy that belong to the process."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), state[1].tobytes(), *state[2:]
