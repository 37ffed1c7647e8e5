"""The result of `diff`: plain values for programs and for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa
from rich.text import Text

from penstock import describe
from penstock.printing import tables
from penstock.printing.printed import Printed


@dataclass(frozen=True, slots=True)
class ValueDiff:
    """A difference in one field of one record: the record's number in a and in b, and both values as text of at
    most 60 characters. `place` is the first byte or list entry that differs, or None for other types."""

    record_a: int
    record_b: int
    a: str
    b: str
    place: int | None = None


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """A field that differs.

    `kind` is "only in a" or "only in b" (no record of the other dataset has a value), "type" (values of these types are
    never equal) or "values". `num_records` records differ in this field. The field is null or absent in b for
    `num_only_in_a` of them, and in a for `num_only_in_b`. `examples` has the first differences. A field that only one
    side has, and that is null in all records, has `num_records` 0.
    """

    name: str
    kind: Literal["only in a", "only in b", "type", "values"]
    type_a: pa.DataType | None
    type_b: pa.DataType | None
    num_records: int
    num_only_in_a: int
    num_only_in_b: int
    examples: tuple[ValueDiff, ...]


@dataclass(frozen=True, slots=True)
class RecordsDiff:
    """The numbers of records in total, compared and differing, and the first record that differs, by its number in a.

    Without a key, the records that only one side has are the last records of the longer side. With a key, they are the
    records whose key the other side lacks. If records share a key, only the first is compared, and the others are
    counted in `num_repeated_a` and `num_repeated_b`. `keys_…` are the first few of these keys, or all with
    `all_keys=True`, as text."""

    num_a: int
    num_b: int
    num_compared: int
    num_differ: int
    first_differ: int | None
    num_only_in_a: int
    num_only_in_b: int
    num_repeated_a: int = 0
    num_repeated_b: int = 0
    keys_only_in_a: tuple[str, ...] = ()
    keys_only_in_b: tuple[str, ...] = ()
    keys_repeated_a: tuple[str, ...] = ()
    keys_repeated_b: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Printed):
    """The differences of two datasets. Printed, it is a table. `equal` is true if both have the same records with the same values.
    With a key, the order does not matter, but no key may occur twice."""

    fields: tuple[FieldDiff, ...]
    records: RecordsDiff

    @property
    def equal(self) -> bool:
        r = self.records
        return not any(
            (r.num_differ, r.num_only_in_a, r.num_only_in_b, r.num_repeated_a, r.num_repeated_b)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        fields = [
            {
                **asdict(found),
                "type_a": None if found.type_a is None else str(found.type_a),
                "type_b": None if found.type_b is None else str(found.type_b),
            }
            for found in self.fields
        ]
        return {"equal": self.equal, "records": asdict(self.records), "fields": fields}

    def _page(self) -> list[Any]:
        records = self.records
        line = Text()
        if self.equal:
            line.append("equal", style="bold green")
            line.append(f": {describe.records(records.num_compared)}")
        else:
            line.append("different", style="bold red")
            differ, compared = (
                describe.count(records.num_differ),
                describe.records(records.num_compared),
            )
            line.append(f": {differ} of {compared} compared")
        if records.first_differ is not None:
            line.append(f", the first is record {describe.count(records.first_differ)}")
        parts: list[Any] = [line]
        for side in "AB":
            parts += _rest(records, side)
        if self.fields:
            parts += ["", _table(self)]
        return parts

    def _summary(self) -> str:
        if self.equal:
            return f"equal, {describe.records(self.records.num_compared)}"
        fields = ", ".join(describe.escape(field.name) for field in self.fields)
        return (
            f"different, {describe.records(self.records.num_differ)}, {fields}"
            if fields
            else "different"
        )


# -- as a table -----------------------------------------------------------------------------------


def _rest(records: RecordsDiff, side: str) -> list[Text]:
    lines: list[Text] = []
    for word, said in (("only", f"only in {side}"), ("repeated", f"of {side} repeat a key")):
        ending = f"{'in_' if word == 'only' else ''}{side.lower()}"
        number = getattr(records, f"num_{word}_{ending}")
        keys = getattr(records, f"keys_{word}_{ending}")
        if number:
            more = ", …" if number > len(keys) else ""
            named = f": {', '.join(keys)}{more}" if keys else ""
            lines.append(Text(f"{describe.records(number)} {said}{named}", style="yellow"))
    return lines


def _table(found: Diff) -> Any:
    shown = tables.table("field", "records", "record", "A", "B", right=("records", "record"))
    for place, field in enumerate(found.fields):
        if place:
            shown.add_row("", "", "", "", "")
        name = Text(describe.escape(field.name), style="bold")
        name.append(f"\n{_kind(field)}", style="dim not bold")
        count = describe.count(field.num_records)
        records = Text("\n").join(Text(describe.count(e.record_a)) for e in field.examples)
        values = [
            Text("\n").join(
                _value(text, e.place) for text, e in zip(texts, field.examples, strict=True)
            )
            for texts in ([e.a for e in field.examples], [e.b for e in field.examples])
        ]
        shown.add_row(name, count, records, *values)
    return shown


def _kind(field: FieldDiff) -> str:
    if field.kind == "type":
        return describe.escape(f"{field.type_a} in A, {field.type_b} in B")
    word = {"only in a": "only in A", "only in b": "only in B", "values": "other values"}
    said = word[field.kind]
    if field.kind != "values" and not field.num_records:
        return f"{said}, no values"
    return said


def _value(text: str, place: int | None) -> Text:
    """Shorten a value to one line, and add the place of the first difference if the value was shortened."""
    cut = text if len(text) <= 28 else text[:27] + describe.ELLIPSIS
    shown = Text(cut, no_wrap=True)
    if place is not None and cut != text:
        shown.append(f" at {describe.count(place)}", style="dim")
    return shown
