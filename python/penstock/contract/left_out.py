"""Remembers of which fields the program was warned that reading leaves them out."""

from __future__ import annotations

_WARNED_OF: dict[tuple[object, str | None], object] = {}


def warns_first(origin: object, field: str | None) -> bool:
    """Whether this is the first warning about a field of the files that `origin` identifies (`Options.origin`). Only one
    of several threads gets True."""
    own = object()
    return _WARNED_OF.setdefault((origin, field), own) is own
