"""The fields of a shard that are visible after its overlays are applied.

Overlays are applied in the order in which they were made. Each may drop and rename fields that were visible before it,
and then adds its own fields, which replace visible fields of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Changes:
    """What an overlay does to the fields that were visible before it."""

    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    """{old name: new name}. Renames happen at the same time, so two fields may swap names."""

    def __bool__(self) -> bool:
        return bool(self.drop or self.rename)

    def after(self, name: str) -> str | None:
        """The name that a field has afterwards; None if it is no longer visible."""
        if name in self.drop:
            return None
        if name in self.rename:
            return self.rename[name]
        return None if name in self.rename.values() else name  # a renamed field takes its place

    def before(self, name: str) -> str | None:
        """The name that a field had before; None if there was none."""
        for old, new in self.rename.items():
            if new == name:
                return old
        return None if name in self.drop or name in self.rename else name


class _Layer(Protocol):
    @property
    def changes(self) -> Changes: ...
    @property
    def schema(self) -> pa.Schema: ...


class Owner(NamedTuple):
    """The overlay that has the values of a field, and the field's name there."""

    number: int
    name: str


class View:
    """The visible fields of a shard with overlays.

    Example:
        >>> import pyarrow as pa
        >>> from types import SimpleNamespace as Layer
        >>> from penstock.overlay.view import Changes, View
        >>> score = Layer(changes=Changes(), schema=pa.schema([("score", "int64")]))
        >>> renamed = Layer(changes=Changes(("id",), {"score": "rank"}), schema=pa.schema([]))
        >>> view = View([score, renamed])
        >>> view.owners, view.names(["id", "text"])
        ({'rank': Owner(number=0, name='score')}, ['text', 'rank'])
    """

    def __init__(self, layers: Sequence[_Layer]) -> None:
        self.changes = [layer.changes for layer in layers if layer.changes]
        self.owners: dict[str, Owner] = {}
        """The fields whose values are in overlays, by visible name."""
        for number, layer in enumerate(layers):
            self.owners = _moved(self.owners, layer.changes)
            for name in layer.schema.names:
                self.owners[name] = Owner(number, name)

    def after(self, name: str) -> str | None:
        """The visible name of one of the shard's own fields, even if an overlay replaces its values. None if it was
        dropped."""
        after: str | None = name
        for changes in self.changes:
            after = None if after is None else changes.after(after)
        return after

    def before(self, name: str) -> str | None:
        """The shard's own name of a visible field. None if the shard cannot have it."""
        before: str | None = name
        for changes in reversed(self.changes):
            before = None if before is None else changes.before(before)
        return before

    def names(self, names: Iterable[str]) -> list[str]:
        """The visible fields of a shard whose own fields are `names`."""
        kept = [after for after in map(self.after, names) if after is not None]
        return list(dict.fromkeys([*kept, *self.owners]))


def _moved(fields: dict[str, Value], changes: Changes) -> dict[str, Value]:
    after = ((changes.after(name), value) for name, value in fields.items())
    return {name: value for name, value in after if name is not None}
