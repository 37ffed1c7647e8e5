"""The shared part of commands that write chosen records: their options, and the source that they pass to the API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

import penstock as ps
from penstock.cli.options import (
    OF_RECORDS,
    filtered,
    misuse,
    one_or_many,
    opened,
    reading,
    values_of,
)
from penstock.cli.stores import target_storage_option
from penstock.cli.words import PATH, SIZE

Function = TypeVar("Function", bound=Callable[..., Any])

READING_DEFAULTS = {
    "format": None,
    "read": (),
    "computed": (),
    "columns": None,
    "types": None,
    "text": None,
    "hive": None,
    "raw": False,
    "checksums": "all",
    "damage": "error",
    "index": "auto",
    "overlays": None,
    "limits": None,
    "dialect": "protobuf",
    "infer": None,
    "missing_shards": "error",
}

_OPTIONS = (
    click.option("--to", help="Format to write. [default: from the name of the target]"),
    click.option("--prove", is_flag=True, help="Read the result again and compare every value."),
    click.option("--compression", help="A compression of the format, such as gzip or zstd."),
    click.option(
        "--num-shards", type=click.IntRange(min=1), help="Number of files, of equal length."
    ),
    click.option("--shard-records", type=click.IntRange(min=1), help="Records per file."),
    click.option(
        "--shard-bytes", type=SIZE, help="Bytes per file, approximately, such as 3000000 or 64MiB."
    ),
    click.option(
        "--option",
        "more",
        multiple=True,
        metavar="NAME=VALUE",
        help="An option of the written format.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace files that exist."),
    click.option(
        "--exact", is_flag=True, help="Refuse values that the format cannot hold exactly."
    ),
    reading(*OF_RECORDS),
    target_storage_option,
)


into_option = click.option(
    "--into",
    required=True,
    type=PATH,
    help="The file to write; with several files, {shard:05d} in the name is the file's number.",
)


def writing(*, shard_bytes: bool = True) -> Callable[[Function], Function]:
    """Add the options of a command that writes records."""
    kept = [option for n, option in enumerate(_OPTIONS) if shard_bytes or n != 5]

    def add(function: Function) -> Function:
        for option in reversed(kept):
            function = option(function)
        return function

    return add


def source_of(source: Sequence[str], options: dict[str, Any], where: str | None = None) -> Any:
    """Remove the reading options from `options`, and return the source: a Dataset opened with them, or a path. With
    `where`, it is a Dataset of the records for which this condition is true.

    A path is returned if there are no reading options, and `options` keep those of its store. Payloads can then be
    copied from TFRecord to TFRecord unparsed.
    A command keeps the options that it passes to the API itself out of `options`.
    """
    reads = {word: options.pop(word, default) for word, default in READING_DEFAULTS.items()}
    if reads == READING_DEFAULTS and where is None:
        return one_or_many(source)
    reads["storage_options"] = options.pop("storage_options", None)
    return filtered(opened(source, **reads), where)


def datasets_of(source: Any) -> tuple[ps.Dataset, ...]:
    """The dataset that `source_of` has opened, whose skipped regions are reported; empty if it returned a path."""
    return (source,) if isinstance(source, ps.Dataset) else ()


def all_but(
    names: Sequence[str],
    columns: Sequence[str] | None,
    source: Any,
    storage_options: dict[str, str] | None,
) -> list[str]:
    """The fields of a source, as `source_of` returns it, without these. `columns` must not be given, too."""
    if columns is not None:
        raise click.UsageError("--columns and --drop exclude each other")
    named: dict[str, Any] = {"storage_options": storage_options} if storage_options else {}
    ds = source if isinstance(source, ps.Dataset) else ps.open(source, **named)
    with misuse(named=names):
        ds.select(names)  # refuses unknown names
    kept = [name for name in ds.schema.names if name not in names]
    if not kept:
        raise click.UsageError("--drop: no field would be left")
    return kept


def written_as(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the written files, as keywords of the API."""
    written = values_of(options.pop("more"), "--option")
    if "compression" in written:
        options["compression"] = written.pop("compression")  # decides the names of files
    options["format"] = options.pop("to")
    return {**options, "write_options": written}
