"""`prefetch`: a thread makes values ahead of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.engine.pipeline import in_order
from penstock.engine.threads import users_code
from penstock.tf.data.failures import Raising, guarded


def ahead(values: Iterator[Any], most: int) -> Raising:
    """The same values, made by a thread, at most `most` ahead. The thread alone uses `values` from the first one on.
    When the result is dropped, also in the middle, the thread ends."""

    def made() -> Iterator[Any]:
        with users_code():
            yield from guarded(values)

    return Raising(in_order([made], lambda value: (value,), lambda _: 1, 1, most, ahead=True))
