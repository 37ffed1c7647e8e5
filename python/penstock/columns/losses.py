"""Notes about values that a writer changes because its format cannot hold them. `exact=True` refuses such changes."""

from __future__ import annotations

from penstock.errors import SchemaError

ROUNDED = "float64 is rounded to float32, which the format holds"
NO_NAMES = "class labels are stored as their numbers, and only the sidecar has their names"
EXACT_HINT = "leave out exact=True, which refuses this"


class Losses:
    """The notes of one writer, without duplicates. Thread-safe."""

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def add(self, field: str, what: str, record: int | None = None) -> None:
        """Note a change such as "float64 is rounded to float32", or raise SchemaError if `exact` is set."""
        if self.exact:
            raise SchemaError(what, record=record, field=field, hint=EXACT_HINT)
        self.tell(field, what)

    def tell(self, field: str, what: str) -> None:
        """Note a change of type that keeps the values, which `exact` allows."""
        self._notes[f"field {field!r}: {what}"] = None
