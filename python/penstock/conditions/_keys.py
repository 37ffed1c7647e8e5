"""Keys of JSON that a condition names and no record has: they are probably misspelt."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pyarrow as pa

from penstock import describe
from penstock.conditions._grammar import Call, Field, IsNull, Literal, Node, Operation
from penstock.conditions._json import at_path, json_field
from penstock.conditions._values import inside
from penstock.errors import SchemaError

_MOST_NAMED = 10
_MOST_CHARACTERS = 40


class Keys:
    """The keys that a condition names. `look` is called with each batch until each key was found in a record."""

    def __init__(self, tree: Node) -> None:
        # For each name that was not found yet, what is to be said about it.
        self._wanted: dict[str, str | None] = dict.fromkeys(_names_of(tree))

    def look(self, batch: pa.RecordBatch) -> None:
        for name in list(self._wanted):
            texts, path = inside(name, batch)
            if not path or _is_found(texts, path, name):
                self._wanted.pop(name, None)
            elif self._wanted.get(name, "") is None:
                self._wanted[name] = _said(texts, path, name)

    def warn(self) -> None:
        """Warn of the keys that were found in none of the records."""
        for said in self._wanted.values():
            if said is not None:
                warnings.warn(said, stacklevel=2)


def _names_of(node: Node) -> list[str]:
    """The fields in a tree, except those whose lack is expected: in `is null` and in coalesce."""
    if isinstance(node, Field):
        return [node.name] if "." in node.name else []
    if isinstance(node, (Literal, IsNull)):
        return []
    if isinstance(node, Operation):
        inner = (node.left, node.right)
    elif isinstance(node, Call):
        inner = () if node.function == "coalesce" else node.operands
    else:
        inner = (node.operand,)
    return [name for one in inner for name in _names_of(one)]


def _is_found(texts: pa.Array, path: list[str], name: str) -> bool:
    try:
        values = json_field(texts, path, name)
    except SchemaError:  # the condition did not need these values, or it has reported this
        return True
    return values.null_count < len(values)


def _said(texts: Any, path: list[str], name: str) -> str | None:
    """The warning about a key, if any record has a text."""
    first = texts.storage.drop_null()[:1].to_pylist()
    if not first:
        return None
    keys = ".".join(path)
    said = f"no record has a value for the key {keys!r} in {name[: -len(keys) - 1]!r}"
    known = at_path(json.loads(first[0]), path[:-1])
    if isinstance(known, dict) and known:
        shown = [describe.cut(repr(key), _MOST_CHARACTERS) for key in list(known)[:_MOST_NAMED]]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        said += f"; the first record has the keys {', '.join(shown)}"
    return said
