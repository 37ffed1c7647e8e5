"""Errors of penstock that were raised on a worker."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from ray.exceptions import RayTaskError

from penstock.errors import PenstockError


@contextmanager
def own_errors() -> Generator[None]:
    """Raise errors of penstock in tasks as they are, without what Ray puts around them."""
    try:
        yield
    except RayTaskError as error:
        cause: BaseException | None = error
        while cause is not None and not _is_own(cause):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is None:
            raise
        raise cause from None


def _is_own(error: BaseException) -> bool:
    return isinstance(error, PenstockError) and not isinstance(error, RayTaskError)
