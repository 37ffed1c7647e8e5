"""Functions that the operations of `tf.strings` share. They process strings one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.tensor import Tensor, convert_to_tensor

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ", "upper": "A-Z", "word": "a-zA-Z0-9_", "xdigit": "0-9a-fA-F",
}  # fmt: skip


def strings(value: Any) -> Any:
    """An argument as a tensor of strings, or a ragged one.

    Raises:
        InvalidArgumentError: it has another dtype.
    """
    if isinstance(value, RaggedTensor):
        return value
    given = convert_to_tensor(value)
    if given.dtype != string and not given.size and not isinstance(value, np.ndarray):
        return np.empty(np.shape(given), object).view(Tensor)
    if given.dtype != string:
        raise InvalidArgumentError(
            None, None, f"expected strings, not a tensor of {as_dtype(given.dtype).name}"
        )
    return given


def each(value: Any, change: Callable[[bytes], Any], dtype: Any = string) -> Any:
    """The results of a function of each string, in the same shape."""
    given = strings(value)
    if isinstance(given, RaggedTensor):
        return given.with_flat_values(each(given.flat_values, change, dtype))
    made = np.empty(np.shape(given), as_dtype(dtype).dtype)
    flat = made.reshape(-1)
    for place, text in enumerate(given.ravel().tolist()):
        flat[place] = change(text)
    return made.view(Tensor)


def text_of(value: Any) -> str:
    """A scalar argument as text."""
    if isinstance(value, np.ndarray):
        value = value.item()
    return value.decode() if isinstance(value, bytes) else str(value)


def bytes_of(value: Any) -> bytes:
    """A scalar argument as bytes."""
    return text_of(value).encode()


def decoded(text: bytes) -> str:
    """Decode UTF-8 to text. Other bytes become surrogates, which `encoded` converts back."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The inverse of `decoded`."""
    return text.encode("utf-8", "surrogateescape")


@lru_cache(512)
def pattern(text: str) -> re.Pattern[str]:
    """Convert an RE2 pattern to a Python pattern.

    Raises:
        InvalidArgumentError: it is not a pattern.
    """
    found = re.sub(r"\[:(\w+):\]", lambda m: _CLASSES.get(m[1], m[0]), text)
    found = re.sub(r"\[:\^(\w+):\]", lambda m: f"^{_CLASSES.get(m[1], m[1])}", found)
    found = found.replace(r"\pL", "^\\W\\d_").replace(r"\z", r"\Z")
    try:
        return re.compile(found, re.ASCII)
    except re.error as error:
        raise InvalidArgumentError(None, None, f"Invalid pattern: {text}, error: {error}") from None


@lru_cache(512)
def rewrite(text: str) -> str:
    r"""Convert a replacement of RE2, in which `\0` to `\9` are groups, to a Python replacement."""
    parts = re.split(r"(\\[0-9]|\\\\)", text)
    return "".join(
        rf"\g<{part[1]}>" if re.fullmatch(r"\\[0-9]", part) else part if part == r"\\"
        else part.replace("\\", r"\\")
        for part in parts
    )  # fmt: skip
