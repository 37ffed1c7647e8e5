"""`penstock diff`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from penstock import describe
from penstock.cli import output
from penstock.cli.options import json_option, opened, reading

if TYPE_CHECKING:
    import penstock as ps

_MISUSE = re.compile(r"^no such (column|field)|cannot be a key; ")


@click.command(
    "diff",
    epilog="""\b
Examples:
  penstock diff old.tfrecord new.tfrecord
  penstock diff 'train-*.tfrecord' train.parquet
  penstock diff --by id --columns id,label old.parquet shuffled.parquet
  penstock diff --json old/ new/ > differences.json
""",
)
@click.argument("a", type=click.Path(), metavar="A")
@click.argument("b", type=click.Path(), metavar="B")
@click.option("--by", metavar="NAME", help="Match records by this field, whatever their order.")
@reading("columns", "raw", "checksums", "damage", "index", "limits", "threads", "dialect")
@json_option
def command(
    a: str,
    b: str,
    by: str | None,
    columns: list[str] | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show which fields and records of two datasets differ, by content.

    A and B are each a file, a pattern in quotes, a folder or name@N, of any formats. Records are
    compared in order, by value: an int32 equals an int64, a string equals its bytes, and null
    equals an absent field. The exit status is 0 if they are equal, 1 if they differ.
    """
    import penstock as ps

    sides = [opened((source,), **options) for source in (a, b)]
    try:
        with output.progress("diff") as progress:
            found = ps.diff(*sides, columns=columns, by=by, threads=threads, progress=progress)
    except ps.SchemaError as error:
        if _MISUSE.search(error.message):
            message = f"{error.field!r}: {error.message}"
            raise click.UsageError(message, click.get_current_context(silent=True)) from None
        raise
    if as_json:
        damage = [region for ds in sides for region in output.damage_of(ds)]
        output.emit({**found.to_dict(), "damage": damage})
    else:
        _show(found)
        for ds in sides:
            output.print_damage(ds)
    if not found.equal:
        raise click.exceptions.Exit(1)


def _show(found: ps.Diff) -> None:
    records = found.records
    line = Text()
    if found.equal:
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
    if found.fields:
        parts += ["", _table(found)]
    output.show(*parts)


def _rest(records: ps.RecordsDiff, side: str) -> list[Text]:
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


def _table(found: ps.Diff) -> Any:
    shown = output.table("field", "records", "record", "A", "B", right=("records", "record"))
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


def _kind(field: ps.FieldDiff) -> str:
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
