"""Arguments of `Image` that change colours, as torchvision's `ColorJitter` and `RandomGrayscale` have them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import nan
from numbers import Real
from typing import Any

Range = tuple[float, float]

_KINDS = {
    "brightness": (1.0, 0.0, sys.float_info.max),
    "contrast": (1.0, 0.0, sys.float_info.max),
    "saturation": (1.0, 0.0, sys.float_info.max),
    "hue": (0.0, -0.5, 0.5),
}
"""The value that changes nothing, the smallest, and the largest."""


def checked_jitter(jitter: Mapping[str, Any] | None) -> dict[str, Range] | None:
    """The smallest and largest value of each change, in the order of ColorJitter's arguments."""
    for name in jitter or {}:
        if name not in _KINDS:
            raise ValueError(f"unknown jitter {name!r}; known: {', '.join(_KINDS)}")
    return (
        {name: _range(name, jitter[name]) for name in _KINDS if name in jitter} if jitter else None
    )


def _range(name: str, value: Any) -> Range:
    neutral, least, most = _KINDS[name]
    if isinstance(value, Real):
        low, high = max(neutral - float(value), least), neutral + float(value)
    else:
        low, high = _pair(value)
    if least <= low <= high <= most:
        return low, high
    kind = "from 0 to 0.5" if name == "hue" else "from 0"
    edges = "from -0.5 to 0.5" if name == "hue" else "from 0"
    raise ValueError(
        f"jitter: {name} must be a number {kind}, or (smallest, largest), each {edges}, not {value!r}"
    )


def _pair(value: Any) -> Range:
    """The two numbers; NaN, which is in no range, if the value is anything else."""
    try:
        low, high = (float(edge) for edge in value)
    except (TypeError, ValueError):
        return nan, nan
    return low, high


def check_colours(
    jitter: Mapping[str, Any] | None, probability: float, grayscale: float, dtype: str
) -> None:
    """Refuse probabilities that are none, and what would have no effect."""
    for name, value in (("jitter_probability", probability), ("grayscale", grayscale)):
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be a probability from 0 to 1, not {value}")
    if probability != 1 and jitter is None:
        raise ValueError("jitter_probability needs jitter=")
    if dtype == "uint16" and (jitter is not None or grayscale):
        raise ValueError("jitter and grayscale change 8-bit values; use dtype='uint8' or a float")


def ranges_of(jitter: Mapping[str, Any] | None) -> list[Range | None]:
    """The ranges of all kinds, as Rust needs them; None for what is not changed."""
    return [(jitter or {}).get(name) for name in _KINDS]
