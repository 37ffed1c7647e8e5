"""Errors in a stream: each takes the place of a value, and the stream continues after it if it can.

A Python generator ends when it raises an error. Other iterators continue with the next value, so `ignore_errors` can
skip their errors.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from penstock.tf.data.blocks import Blocks
from penstock.tf.data.op import Op, Stream


class Failure:
    """An error in place of a value."""

    nbytes = 0

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    def throw(self) -> None:
        """Raise the error, and drop it, because its traceback would refer to this object."""
        error, self.error = self.error, None
        assert error is not None
        try:
            raise error
        finally:
            del error


def is_over(values: Any) -> bool:
    """Whether an iterator ends when it raises an error."""
    if isinstance(values, Raising):
        return values.is_over()
    return getattr(values, "gi_frame", values) is None


def guarded(values: Iterator[Any]) -> Iterator[Any]:
    """The values, with errors in their places."""
    while True:
        try:
            value = next(values)
        except StopIteration:
            return
        except Exception as error:
            yield Failure(error)
            if is_over(values):
                return
        else:
            yield value
            del value


class Raising:
    """The values. If one is a failure, its error is raised."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __iter__(self) -> Raising:
        return self

    def __next__(self) -> Any:
        value = next(self._values)
        if type(value) is Failure:
            value.throw()
        return value

    def is_over(self) -> bool:
        """Whether nothing follows the last error."""
        return is_over(self._values)

    def close(self) -> None:
        """Close the source of the values."""
        self._values.close()


class IgnoreErrors(Op):
    """The elements without those that raise an error."""

    def __init__(self, source: Op, warns: bool) -> None:
        self.source = source
        self.warns = warns

    def open(self) -> Stream:
        stream = self.source.open()
        if isinstance(stream, Blocks):
            return stream.like(self._run(stream.blocks))
        return self._run(stream)

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        while True:
            try:
                element = next(values)
            except StopIteration:
                return
            except Exception as error:
                if is_over(values):
                    raise  # the iterator has ended, so no further values can be read
                if self.warns:
                    warnings.warn(f"an element is skipped: {error}", stacklevel=2)
                continue
            yield element

    def spec(self) -> Any:
        return self.source.spec()
