"""The errors of the client of object stores, in penstock's own."""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from penstock import _core
from penstock.errors import ChangedError, StorageError, UnsupportedError, shown


@contextmanager
def translated(path: str, *, is_open: bool = False) -> Generator[None]:
    """Convert errors of the client. `is_open`: the object was there before."""
    try:
        yield
    except _core.StoreError as error:
        raise _translated(error.args, path, is_open=is_open) from None


def _translated(facts: Sequence[Any], path: str, *, is_open: bool) -> Exception:
    kind, message, _, start, end, tries, seconds = facts
    name = shown(path)
    if kind == "missing":
        if not is_open:
            return FileNotFoundError(errno.ENOENT, "no such object", name)
        return ChangedError(
            "the object was removed while it was open",
            file=name,
            hint="put it back and open the data again",
        )
    if kind == "changed":
        return ChangedError(
            "the object was changed or replaced while it was open",
            file=name,
            hint="open the data again",
        )
    if kind == "exists":
        return FileExistsError(errno.EEXIST, "the object exists", name)
    if kind == "unsupported":
        return UnsupportedError(message, file=name)
    hint = None
    if kind == "denied":
        hint = "credentials in the environment, or storage_options="
    where = "" if end is None else f" at bytes {start} to {end}"
    how_often = "" if not tries else f" ({tries} attempt{'s' * (tries > 1)} in {seconds:.1f} s)"
    error = StorageError(f"the store failed{where}{how_often}: {message}", file=name, hint=hint)
    error.errno = errno.EACCES if kind == "denied" else None
    return error
