"""Notes of values that a writer changes because its format cannot hold them exactly. `exact=True` refuses changes."""

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
        """Descriptions of the changes so far."""
        return tuple(self._notes)

    def add(self, field: str, what: str, record: int | None = None) -> None:
        """Note a change in a field.

        Args:
            field: the name of the field.
            what: the change, such as "float64 is rounded to float32".
            record: the number of a changed record, if known.

        Raises:
            SchemaError: `exact` is set.
        """
        if self.exact:
            raise SchemaError(what, record=record, field=field, hint=EXACT_HINT)
        self._notes[f"field {field!r}: {what}"] = None
