"""`penstock stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa
from rich.text import Text

from penstock import describe
from penstock.cli import output
from penstock.cli.info import spread_document
from penstock.cli.options import (
    filtered,
    json_option,
    misuse,
    names_in,
    opened,
    reading,
    source_argument,
    where_option,
)

if TYPE_CHECKING:
    import penstock as ps


@click.command(
    "stats",
    epilog="""\b
Examples:
  penstock stats train.tfrecord
  penstock stats --columns label,score 'train-*.tfrecord'
  penstock stats --where 'label == 3' train.tfrecord
  penstock stats --json --threads 4 train.parquet
""",
)
@source_argument
@where_option
@reading(
    "format",
    "read",
    "columns",
    "raw",
    "checksums",
    "damage",
    "index",
    "limits",
    "threads",
    "dialect",
    "infer",
)
@reading("types", "hive")
@json_option
def command(
    source: tuple[str, ...],
    where: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Summarise each field: nulls, lengths, ranges, distinct values, images, a histogram.

    Reads every record once, in bounded memory. All figures are exact; distinct values are counted
    up to 4,096.
    """
    import penstock as ps

    ds = filtered(opened(source, **options), where)
    with output.progress("stats") as progress, misuse(named=names_in(where)):
        found = ps.stats(ds, columns=options["columns"], threads=threads, progress=progress)
    if as_json:
        output.emit({**_document(found), "damage": output.damage_of(ds)})
    else:
        _show(found)
        output.print_damage(ds)


def _document(found: ps.Stats) -> dict[str, Any]:
    return {
        "num_records": found.num_records,
        "fields_from": found.fields_from,
        "fields": [_field_document(field) for field in found.fields],
    }


def _field_document(field: ps.FieldStats) -> dict[str, Any]:
    histogram = field.histogram
    return {
        "name": field.name,
        "type": str(field.type),
        "num_entries": field.num_entries,
        "num_null": field.num_null,
        "lengths": spread_document(field.lengths),
        "sizes": spread_document(field.sizes),
        "values": spread_document(field.values),
        "num_nan": field.num_nan,
        "num_infinite": field.num_infinite,
        "is_text": field.is_text,
        "num_distinct": field.num_distinct,
        "has_more_distinct": field.has_more_distinct,
        "most_common": [{"value": v, "count": c} for v, c in field.most_common],
        "histogram": histogram
        and {
            "of": histogram.of,
            "start": histogram.start,
            "bin_width": histogram.bin_width,
            "counts": histogram.counts,
        },
        "images": [
            {
                "kind": image.kind,
                "count": image.width.count,
                "width": spread_document(image.width),
                "height": spread_document(image.height),
            }
            for image in field.images
        ],
    }


def _show(found: ps.Stats) -> None:
    shown = output.table("field", "present", "values", right=("present",))
    for place, field in enumerate(found.fields):
        left = Text(describe.escape(field.name), style="bold")
        left.append(f"\n{describe.escape(describe.kind(field.type))}", style="dim not bold")
        right = Text("\n").join(_lines(field))
        shown.add_row(left, _present(field), right, end_section=True)
        if place < len(found.fields) - 1:
            shown.add_row("", "", "")
    parts: list[Any] = [describe.records(found.num_records), "", shown]
    if found.fields_from is not None:
        note = f"the fields of {found.fields_from}; --infer all adds fields that only other records have"
        parts += ["", output.dim(describe.escape(note))]
    output.show(*parts)


def _present(field: ps.FieldStats) -> Text:
    if not field.num_null:
        return Text("all" if field.num_entries else "none")
    share = 100 * (field.num_entries - field.num_null) / field.num_entries
    shown = Text(f"{share:.3g} %" if field.num_null < field.num_entries else "none")
    return shown.append(f"\n{describe.count(field.num_null)} null", style="yellow")


def _lines(field: ps.FieldStats) -> list[Text]:
    lines: list[str] = []
    if field.lengths is not None:
        lines.append("length " + output.spread(field.lengths, _figure))
    for image in field.images:
        sides = f"{_side(image.width)} x {_side(image.height)} pixels"
        lines.append(f"{describe.count(image.width.count)} {image.kind} images, {sides}")
    if field.sizes is not None:
        word = "text of " if field.is_text else ""
        lines.append(word + output.spread(field.sizes, describe.size))
    if field.values is not None:
        lines.append(_range(field))
    odd = {"NaN": field.num_nan, "infinite": field.num_infinite}
    lines += [f"{describe.count(number)} {word}" for word, number in odd.items() if number]
    if field.num_distinct is not None:
        lines.append(_distinct(field))
    shown = [Text(line) for line in lines]
    if field.histogram is not None:
        shown.append(_histogram(field.histogram))
    return shown or [output.dim("no values")]


def _histogram(histogram: ps.Histogram) -> Text:
    line = Text(describe.bars(histogram.counts), style="cyan")
    if histogram.of != "values":
        line.append(f"  of {histogram.of}", style="dim")
    return line


def _range(field: ps.FieldStats) -> str:
    assert field.values is not None
    spread = field.values
    if spread.mean is None:
        return f"{spread.min} … {spread.max}" if spread.min != spread.max else f"{spread.min}"
    return output.spread(spread, _figure)


def _figure(value: Any) -> str:
    """Return a number as text: integers in full, other numbers to four digits."""
    if isinstance(value, float) and (not value.is_integer() or abs(value) >= 1e15):
        return f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return describe.count(int(value)) if not isinstance(value, bool) else str(value).lower()


def _side(spread: ps.Spread) -> str:
    return str(spread.min) if spread.min == spread.max else f"{spread.min}–{spread.max}"


def _distinct(field: ps.FieldStats) -> str:
    number = field.num_distinct or 0
    if field.has_more_distinct:
        return f"more than {describe.count(number)} distinct"
    shown = f"{describe.count(number)} distinct"
    if not field.most_common or field.most_common[0][1] == 1:
        return shown
    total = field.values.count if field.values is not None else 0
    total = total or (field.sizes.count if field.sizes is not None else 0)
    common = [
        f"{describe.value(_scalar(value), 16)} ({100 * count / total:.3g} %)"
        for value, count in field.most_common[:3]
    ]
    return f"{shown}: {', '.join(common)}"


def _scalar(value: Any) -> pa.Scalar:
    """Return a value as an Arrow scalar. By default pyarrow makes every integer an int64."""
    is_large = isinstance(value, int) and value >= 1 << 63
    return pa.scalar(value, pa.uint64()) if is_large else pa.scalar(value)
