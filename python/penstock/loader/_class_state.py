"""The class names in a loader's state, in short form: a loader with different names refuses the state and says why.

| key | what |
|---|---|
| `digest` | hash of all lists, 8 bytes as hex; the lists match if it does |
| `of` | only for the error message: the names of each column. If these need 256 bytes or more, it has their `count`, the `digest` of the list, and `sorted`, the digest of the sorted names. If these are also too long, it is missing |
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


def in_state(known: Known) -> dict[str, Any]:
    """The entry of a state that identifies the class names of its loader."""
    listed: dict[str, Any] = {path: list(names) for path, names in known.items()}
    for of in (listed, {path: _summary(names) for path, names in known.items()}):
        if len(json.dumps(of)) < _MOST_BYTES:
            return {"digest": _digest_of_all(known), "of": of}
    return {"digest": _digest_of_all(known)}


def check_state(known: Known, stored: Any) -> None:
    """Raise StateError unless the class names in a state are those of the loader that loads it."""
    digest = stored.get("digest") if isinstance(stored, Mapping) else None
    wanted = _digest_of_all(known) if known else None
    if digest != wanted:
        raise StateError(
            f"the state is from a loader with different class names: {_difference(known, stored)}",
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
