"""What the commands that write chosen records share: options, and the source that they pass to the API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

import penstock as ps
from penstock.cli.options import one_or_many, opened, reading, values_of

Function = TypeVar("Function", bound=Callable[..., Any])

READING_DEFAULTS = {
    "format": None,
    "read": (),
    "types": None,
    "hive": False,
    "raw": False,
    "checksums": "all",
    "damage": "error",
    "index": "auto",
    "limits": None,
    "dialect": "protobuf",
    "infer": None,
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
        "--shard-bytes", type=click.IntRange(min=1), help="Bytes per file, approximately."
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
    reading("format", "read", "types", "hive", "raw", "checksums", "damage", "index"),
    reading("limits", "threads", "dialect", "infer"),
)


def writing(*, shard_bytes: bool = True) -> Callable[[Function], Function]:
    """Add the options of a command that writes records."""
    kept = [option for n, option in enumerate(_OPTIONS) if shard_bytes or n != 5]

    def add(function: Function) -> Function:
        for option in reversed(kept):
            function = option(function)
        return function

    return add


def source_of(source: Sequence[str], options: dict[str, Any]) -> Any:
    """Take the reading options out of the options, and return what the API is to read.

    A path lets the payloads of a TFRecord pass to another one unparsed; reading options need a Dataset.
    """
    reads = {word: options.pop(word) for word in READING_DEFAULTS}
    return one_or_many(source) if reads == READING_DEFAULTS else opened(source, **reads)


def datasets_of(source: Any) -> tuple[ps.Dataset, ...]:
    """The dataset that was read, if `source_of` opened one, for what was skipped in it."""
    return (source,) if isinstance(source, ps.Dataset) else ()


def written_as(options: dict[str, Any]) -> dict[str, Any]:
    """The options of the written files, as keywords of the API."""
    written = values_of(options.pop("more"), "--option")
    if "compression" in written:
        options["compression"] = written.pop("compression")  # decides the names of files
    options["format"] = options.pop("to")
    return {**options, "write_options": written}
