"""The arguments of `penstock.Image`, checked one by one."""

from __future__ import annotations

from operator import index
from typing import Any, SupportsIndex

_MOST_SIDE = 1 << 20


def channels(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (int, float)):
        return value
    values = tuple(float(one) for one in value)
    if len(values) != 3:
        raise ValueError(f"{name} must be one number or three, not {len(values)}")
    return values


def whole_channels(fill: Any) -> Any:
    return index(fill) if isinstance(fill, SupportsIndex) else tuple(index(one) for one in fill)


def flips(flip: Any) -> Any:
    check_word("flip", flip, (False, True, "horizontal", "vertical", "both"))
    return flip == "horizontal" or (flip if isinstance(flip, str) else bool(flip))


def edges_of(name: str, value: Any) -> tuple[float, ...]:
    """The smallest and the largest value."""
    try:
        return tuple(float(edge) for edge in value)
    except TypeError:
        message = f"{name} is two numbers, (smallest, largest), not {value!r}"
        raise TypeError(message) from None


def check_word(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name}={value!r}; known: {', '.join(map(str, known))}")


def check_size(size: Any, sides: tuple[int, ...] | None) -> None:
    if sides is not None and (len(sides) != 2 or not all(0 < side <= _MOST_SIDE for side in sides)):
        raise ValueError(f"size must be a number of pixels or (height, width), not {size!r}")
