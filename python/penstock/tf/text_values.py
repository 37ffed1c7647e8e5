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
    """A scalar argument as text, in which bytes that are not UTF-8 are as in `decoded`."""
    if isinstance(value, np.ndarray):
        value = value.item()
    return decoded(value) if isinstance(value, bytes) else str(value)


def bytes_of(value: Any) -> bytes:
    """A scalar argument as bytes."""
    return encoded(text_of(value))


def characters(text: bytes) -> list[bytes]:
    """A string cut where UTF8_CHAR counts a character: before each byte that does not continue one."""
    starts = [n for n, byte in enumerate(text) if not n or byte & 0xC0 != 0x80]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=False)]


def decoded(text: bytes) -> str:
    """Decode UTF-8 to text. Other bytes become surrogates, which `encoded` converts back."""
    return text.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The inverse of `decoded`."""
    return text.encode("utf-8", "surrogateescape")


@lru_cache(512)
def rewritten(text: str) -> str:
    r"""Convert a replacement of RE2, in which `\0` to `\9` are groups, to a Python replacement."""
    parts = re.split(r"(\\[0-9]|\\\\)", text)
    return "".join(
        rf"\g<{part[1]}>" if re.fullmatch(r"\\[0-9]", part) else part if part == r"\\"
        else part.replace("\\", r"\\")
        for part in parts
    )  # fmt: skip
