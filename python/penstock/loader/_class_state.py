"""The class names in a loader's state: enough to detect that another loader has different names, and to report which.

| key | what |
|---|---|
| `digest` | 8 bytes of all lists, as hex; decides whether they match |
| `of` | for the error message, present if it takes less than 256 bytes: the names of each column, or their `count`, the `digest` of the list and the digest of its names in sorted order (`sorted`) |
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import StateError

_MOST_BYTES = 256

Known = Mapping[str, Sequence[str]]
"""The names of each label column, by its path."""


def in_state(known: Known) -> dict[str, Any]:
    """The entry of a state for the class names of its loader."""
    listed: dict[str, Any] = {path: list(names) for path, names in known.items()}
    for of in (listed, {path: _summary(names) for path, names in known.items()}):
        if len(json.dumps(of)) < _MOST_BYTES:
            return {"digest": _digest_of_all(known), "of": of}
    return {"digest": _digest_of_all(known)}


def check_state(known: Known, stored: Any) -> None:
    """Compare the class names in a state with those of the loader that loads it.

    Raises:
        StateError: the numbers in the other loader's batches stand for other classes.
    """
    digest = stored.get("digest") if isinstance(stored, Mapping) else None
    wanted = _digest_of_all(known) if known else None
    if digest != wanted:
        raise StateError(
            f"the state is from a loader with other class names: {_difference(known, stored)}",
            expected=wanted,
            found=reprlib.repr(digest),
            hint="class_names= of Loader, with the names in the order of the other loader"
            if stored
            else "leave class_names= out, as the other loader did",
        )


def _digest_of_all(known: Known) -> str:
    return _digest([[path, list(names)] for path, names in sorted(known.items())])


def _digest(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def _summary(names: Sequence[str]) -> dict[str, Any]:
    return {"count": len(names), "digest": _digest(list(names)), "sorted": _digest(sorted(names))}


def _difference(known: Known, stored: Any) -> str:
    """Describe the first difference, as far as the state records it."""
    lists = stored.get("of") if isinstance(stored, Mapping) else {}
    if not isinstance(lists, Mapping):
        return "the state does not say which"
    for path in sorted({*known, *map(str, lists)}):
        if path not in known or path not in lists:
            place = "the state" if path in lists else "this loader"
            return f"only {place} has class names of {reprlib.repr(path)}"
        found = _between(known[path], lists[path])
        if found:
            return f"of {path!r}, {found}"
    return "the state does not say which"


def _between(mine: Sequence[str], theirs: Any) -> str | None:
    if isinstance(theirs, list):
        for place in range(max(len(mine), len(theirs))):
            a, b = (names[place] if place < len(names) else None for names in (theirs, mine))
            if a != b:
                return f"class {place} is {_named(a)} in the state and {_named(b)} here"
        return None
    if not isinstance(theirs, Mapping):
        return None
    count, digest = theirs.get("count"), theirs.get("digest")
    if digest == _digest(list(mine)):
        return None
    if isinstance(count, int) and 0 <= count < len(mine) and digest == _digest(list(mine[:count])):
        return f"class {count} is {_named(mine[count])} here, and the state has {count} classes"
    if theirs.get("sorted") == _digest(sorted(mine)):
        return f"the {len(mine)} names are the same, in another order"
    return (
        f"the state has {reprlib.repr(count)} classes and this loader {len(mine)}, with other names"
    )


def _named(name: Any) -> str:
    return "missing" if name is None else reprlib.repr(name)
