"""Opens a shard, after checking the options that all formats have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.contract.format import Format, Options, Reader
from penstock.errors import UnsupportedError
from penstock.storage.base import Source


def open_shard(fmt: Format, source: Source, options: Options) -> Reader:
    """Open a file, after checking the options.

    Raises:
        TypeError: an option is unknown, or its value has a wrong type.
        UnsupportedError: the format does not support raw=True, or this kind of schema=.
    """
    info = fmt.info
    options = replace(options, own=fmt.own_options(options))
    if options.raw and not info.has_raw_records:
        raise UnsupportedError(
            f"raw=True returns the framed records of a file, and {info.name} has columns instead",
            file=source.path,
            hint="open it without raw=True",
        )
    has_schema = isinstance(options.schema, pa.Schema)
    if not (has_schema or options.schema is None or info.takes_descriptions):
        kind = type(options.schema).__name__
        raise UnsupportedError(
            f"schema= of {info.name} can only be a pyarrow.Schema, not {kind}", file=source.path
        )
    reader = fmt.open(source, options)
    if options.raw and reader.schema.names[:1] != ["record"]:
        reader.close()
        raise UnsupportedError(f"{info.name} has no raw records", file=source.path)
    if has_schema:
        asked: Any = options.schema
        if (reader.schema.names, reader.schema.types) != (asked.names, asked.types):
            reader.close()
            message = f"{info.name} has fixed columns, and takes no schema="
            raise UnsupportedError(message, file=source.path)
    return reader
