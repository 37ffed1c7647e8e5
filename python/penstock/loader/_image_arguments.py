"""The arguments of `penstock.Image`, checked one by one."""

from __future__ import annotations

from operator import index
from typing import Any, SupportsIndex

import numpy as np

from penstock.formats.numpy.dtypes import BFLOAT16

DTYPES = ("uint8", "uint16", "float32", "float16", BFLOAT16)
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


def dtype_name(dtype: Any) -> str:
    """The name of a dtype of NumPy, or of torch, which NumPy does not know."""
    name = str(dtype)
    if name.startswith("torch."):
        return name.removeprefix("torch.")
    return name if name in DTYPES else np.dtype(dtype).name


def check_mode(mode: Any, given: dict[str, Any]) -> None:
    """Check the mode, and that nothing is given for each colour of an image without colours."""
    if mode not in ("rgb", "grey"):
        reason = "'stored' has as many channels as each image, which a batch cannot"
        raise ValueError(f"unknown mode={mode!r}; known: rgb, grey ({reason})")
    for name, value in given.items():
        if mode == "grey" and isinstance(value, tuple):
            raise ValueError(f"{name} must be one number with mode='grey', not {value}")


def check_size(size: Any, sides: tuple[int, ...] | None) -> None:
    if sides is not None and (len(sides) != 2 or not all(0 < side <= _MOST_SIDE for side in sides)):
        raise ValueError(f"size must be a number of pixels or (height, width), not {size!r}")


def check_crop(scale: tuple[float, ...], ratio: tuple[float, ...], center_fraction: float) -> None:
    for name, edges, most in (("scale", scale, 1.0), ("ratio", ratio, 1e6)):
        if len(edges) != 2 or not 0 < edges[0] <= edges[1] <= most:
            raise ValueError(f"{name} must be (smallest, largest), each above 0 and at most {most}")
    if not 0 < center_fraction <= 1:
        raise ValueError(f"center_fraction must be above 0 and at most 1, not {center_fraction}")
