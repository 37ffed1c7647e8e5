"""The result of `diff`: plain values for programs and for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock import describe


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
    counted in `num_repeated_a` and `num_repeated_b`. `keys_…` are the first few of these keys, as text."""

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


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences of two datasets. `equal` is true if both have the same records with the same values.
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

    def __str__(self) -> str:
        r = self.records
        if self.equal:
            lines = [f"equal: {describe.count(r.num_compared)} records"]
        else:
            lines = [
                f"{describe.count(r.num_differ)} of {describe.count(r.num_compared)} records differ"
            ]
        if r.first_differ is not None:
            lines[0] += f", the first is record {r.first_differ}"
        for side in "ab":
            only, again = getattr(r, f"num_only_in_{side}"), getattr(r, f"num_repeated_{side}")
            lines += [f"{describe.count(only)} records only in {side}"] if only else []
            lines += [f"{describe.count(again)} records of {side} repeat a key"] if again else []
        for f in self.fields:
            types = " and ".join(str(t) for t in (f.type_a, f.type_b) if t is not None)
            name = describe.escape(f.name)
            lines.append(f"  {name} ({types}): {f.kind}, {describe.count(f.num_records)} records")
            lines += [f"    record {e.record_a}: {e.a} | {e.b}" for e in f.examples]
        return "\n".join(lines)
