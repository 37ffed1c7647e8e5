"""`penstock head`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock import describe, tables
from penstock.cli import output
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
    import pyarrow as pa

    import penstock as ps

_LEAST_WIDTH = 12
"""If columns would be narrower than this, each field is shown on its own line."""


@click.command(
    "head",
    epilog="""\b
Examples:
  penstock head train.tfrecord
  penstock head -n 3 --columns image,label 'train-*.tfrecord'
  penstock head --start 41092 -n 1 train.tfrecord
  penstock head --where 'label == 3 and len(tokens) >= 10' train.tfrecord
  penstock head --json -n 100 train.parquet
""",
)
@source_argument
@click.option(
    "-n", "--records", "number", type=click.IntRange(min=0), default=10, show_default=True,
    help="Number of records.",
)  # fmt: skip
@click.option(
    "--start", type=click.IntRange(min=0), default=0, show_default=True,
    help="The first record; records count from 0 over all files, or over the records that --where keeps.",
)  # fmt: skip
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
    "dialect",
    "infer",
    "limits",
)
@reading("types", "hive", "missing_shards")
@json_option
def command(
    source: tuple[str, ...],
    number: int,
    start: int,
    where: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the first records, or records from a given number on.

    Images are shown by kind and size, text as text, and other bytes in hexadecimal. Long values
    are shortened; --json prints complete values.
    """
    # A condition may use fields that are not shown.
    shown = None if where is None else options.pop("columns")
    ds = filtered(opened(source, **options), where)
    if shown is not None:
        with misuse(named=shown):
            ds = ds.select(shown)
    with misuse(named=names_in(where)):
        batch = _records(ds, number, start)
    if as_json:
        rows = [] if batch is None else [_row(batch, n) for n in range(batch.num_rows)]
        output.emit({"first_record": start, "records": rows, "damage": output.damage_of(ds)})
        return
    if batch is None or not batch.num_rows:
        click.echo("no records", err=True)
    else:
        _show(batch, start)
    output.print_damage(ds)


def _records(ds: ps.Dataset, number: int, start: int) -> pa.RecordBatch | None:
    if start:
        return ds.take(range(min(start, len(ds)), min(start + number, len(ds))))
    if not number:
        return None
    # One thread, since only the first records need decoding.
    batches = ds.scan(batch_records=number, threads=1)
    batch = next(batches, None)
    if batch is not None and batch.num_rows < number:
        next(batches, None)  # raises if damage ended the batch early
    return batch


def _row(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    return {
        name: _plain(column[row])
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _plain(scalar: pa.Scalar) -> Any:
    try:
        return output.plain(describe.without_pandas(scalar).as_py())
    except (ValueError, OverflowError, LookupError, ImportError):
        return describe.text_of(scalar)


def _show(batch: pa.RecordBatch, start: int) -> None:
    console = tables.console()
    names = [describe.escape(name) for name in batch.schema.names]
    number_width = len(str(start + batch.num_rows - 1))
    room = console.width - number_width - 2 - 2 * len(names)
    widths = _widths(batch, names, room)
    if widths is None:
        _show_one_by_one(console.width, batch, names, start)
        return
    shown = tables.table("#", *names, right=("#",))
    for column in shown.columns:
        column.no_wrap = True
    shown.columns[0].style = "dim"
    for row in range(batch.num_rows):
        cells = [
            _cell(column[row], width) for column, width in zip(batch.columns, widths, strict=True)
        ]
        shown.add_row(str(start + row), *cells)
    output.show(shown)


def _widths(batch: pa.RecordBatch, names: list[str], room: int) -> list[int] | None:
    """Return the widths at which all columns fit, or None if a column would be too narrow."""
    wanted: list[int] = []
    for heading, column in zip(names, batch.columns, strict=True):
        longest = max(len(describe.value(scalar, max(room, 8))) for scalar in column)
        wanted.append(max(longest, len(heading)))
    cap = max(wanted, default=0)
    while cap > _LEAST_WIDTH and sum(min(width, cap) for width in wanted) > room:
        cap -= 1
    widths = [min(width, cap) for width in wanted]
    return widths if sum(widths) <= room else None


def _cell(scalar: pa.Scalar, width: int) -> Any:
    if not scalar.is_valid:
        return tables.dim("null")
    return describe.value(scalar, width)


def _show_one_by_one(width: int, batch: pa.RecordBatch, names: list[str], start: int) -> None:
    name_width = min(max(len(name) for name in names), width // 2)
    room = width - name_width - 4
    parts: list[Any] = []
    for row in range(batch.num_rows):
        pairs = [
            (f"  {name}", _cell(column[row], room))
            for name, column in zip(names, batch.columns, strict=True)
        ]
        parts += [tables.dim(f"record {start + row}"), tables.facts(pairs)]
    output.show(*parts)
