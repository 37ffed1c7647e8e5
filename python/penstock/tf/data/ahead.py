"""`prefetch`: a thread makes values ahead of the consumer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.engine.pipeline import in_order
from penstock.engine.threads import users_code
from penstock.tf.data.failures import Raising, guarded


def ahead(values: Iterator[Any], most: int) -> Raising:
    """The same values, made by a thread, at most `most` values ahead. Only the thread uses `values`. The thread ends
    when the result is dropped, even before all values were made."""

    def made() -> Iterator[Any]:
        with users_code():
            yield from guarded(values)

    return Raising(in_order([made], lambda value: (value,), lambda _: 1, 1, most, ahead=True))
