"""`penstock stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.info import spread_document
from penstock.cli.on import on_option
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
    "computed",
    "columns",
    "raw",
    "checksums",
    "damage",
    "index",
    "overlays",
    "limits",
    "threads",
    "dialect",
    "infer",
)
@reading("types", "hive", "missing_shards")
@on_option
@json_option
def command(
    source: tuple[str, ...],
    where: str | None,
    threads: int | None,
    on: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Summarise each field: nulls, lengths, ranges, distinct values, images, a histogram.

    Reads every record once, in bounded memory. All figures are exact; distinct values are counted
    up to 4,096.
    """
    import penstock as ps

    # A condition may use fields that are not summarised.
    columns = options["columns"] if where is None else options.pop("columns")
    ds = filtered(opened(source, **options), where)
    with (
        output.progress("stats") as progress,
        misuse(named=(*names_in(where), *(columns or ()))),
    ):
        found = ps.stats(ds, columns=columns, threads=threads, progress=progress, on=on)
    if as_json:
        output.emit({**_document(found), "damage": output.damage_of(ds)})
    else:
        output.show(found)
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
