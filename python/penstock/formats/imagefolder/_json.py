"""Tables of labels as JSON: one array of objects, or one object per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json

from penstock.errors import FormatError
from penstock.limits import Limits

FORMS = (
    "an array of objects, or one object a line, each with file_name; "
    'open(..., table="", other_files="ignore") reads no table'
)

# An unterminated string matches up to the end of the text, so that the work stays linear in the
# text.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_OPENING = np.frombuffer(b"[{", np.uint8)
_BRACKETS = np.frombuffer(b"[{]}", np.uint8)
_SPACE = re.compile(r"[ \t\r\n]*")
_MOST_BLOCK_BYTES = (1 << 31) - 1
_BOM = b"\xef\xbb\xbf"


def read_json(text: bytes, limits: Limits) -> pa.Table:
    """The rows of a JSON table."""
    _check_depth(text, limits)
    text = text.removeprefix(_BOM)
    if text.lstrip(b" \t\r\n").startswith(b"["):
        text = "\n".join(_objects(text.decode(), limits)).encode()
        if not text:
            return pa.table({"file_name": pa.array([], pa.string())})
    # A single block, so that no row is too long for it and the types are inferred from all rows.
    block = arrow_json.ReadOptions(block_size=min(max(len(text), 1), _MOST_BLOCK_BYTES))
    table = arrow_json.read_json(pa.BufferReader(text), block)
    schema = pa.schema([field.with_type(_without_times(field.type)) for field in table.schema])
    if schema == table.schema:
        return table
    # pyarrow reads texts that look like times as times, but JSON has only texts.
    as_texts = arrow_json.ParseOptions(explicit_schema=schema)
    return arrow_json.read_json(pa.BufferReader(text), block, as_texts)


def _objects(text: str, limits: Limits) -> Iterator[str]:
    """The objects of an array, each on one line."""
    decoder = json.JSONDecoder()
    names: set[str] = set()
    place = _after_space(text, _after_space(text, 0) + 1)
    number = 0
    while text[place : place + 1] != "]":
        if number:
            if text[place : place + 1] != ",":
                raise json.JSONDecodeError("',' or ']' is missing", text, place)
            place = _after_space(text, place + 1)
        value, end = decoder.raw_decode(text, place)
        if not isinstance(value, dict):
            message = f"the table of labels has a {_kind(value)} where an object is wanted"
            raise FormatError(message, record=number, hint=FORMS)
        names.update(value)
        number += 1
        # If each row had names of its own, the columns would be almost nothing but nulls.
        limits.check("batch_bytes", number * len(names))
        # A line break inside an object is whitespace between its parts: strings cannot contain
        # one.
        yield text[place:end].replace("\n", " ").replace("\r", " ")
        place = _after_space(text, end)
    rest = _after_space(text, place + 1)
    if rest != len(text):
        raise json.JSONDecodeError("something stands behind the array", text, rest)


def _after_space(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return place if space is None else space.end()


def _kind(value: object) -> str:
    kinds: dict[type, str] = {list: "list", str: "text", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _check_depth(text: bytes, limits: Limits) -> None:
    """Check the nesting depth. Parsers recurse for each level, and pyarrow's would crash the process."""
    marks = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    marks = marks[np.isin(marks, _BRACKETS)]
    depths = np.cumsum(np.where(np.isin(marks, _OPENING), 1, -1))
    limits.check("nesting", int(depths.max(initial=0)))


def _without_times(type_: Any) -> Any:
    """A pyarrow type with its times replaced by texts."""
    if pa.types.is_temporal(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_without_times(field.type)) for field in type_])
    return type_


def json_bytes(table: pa.Table) -> bytes:
    """A table as one JSON object per line."""
    rows = (row for batch in table.to_batches(max_chunksize=4096) for row in batch.to_pylist())
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
