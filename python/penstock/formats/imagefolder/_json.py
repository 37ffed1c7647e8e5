"""Tables of labels as JSON: one array of objects, or one object per line."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from penstock.errors import FormatError
from penstock.limits import Limits

FORMS = (
    "use an array of objects, or one object per line, each with file_name; "
    'or open(..., table="", other_files="ignore"), which reads no table'
)

_BLOCK_ROWS = 1024
_CELL_BYTES = 8
_SPACE = re.compile(r"[ \t\r\n]*")


def read_json(text: bytes, limits: Limits) -> pa.Table:
    """Return the rows of a JSON table. The column types are inferred from all rows."""
    schema = pa.schema([])
    parts: list[pa.Table] = []
    num_rows, num_elements = 0, 0
    rows = _objects(text.decode("utf-8-sig"), limits)
    while some := list(islice(rows, _BLOCK_ROWS)):
        num_elements += sum(_num_elements(row, limits, 1) for row in some)
        try:
            merged = _merged(schema, pa.infer_type(some))
            # If each object has different names, nearly all cells are null, and there are too many of them.
            num_cells = (num_rows + len(some) + num_elements) * _num_columns(pa.struct(merged))
            limits.check("batch_bytes", _CELL_BYTES * num_cells)
            parts.append(pa.Table.from_struct_array(pa.array(some, pa.struct(merged))))
        except pa.ArrowException:
            _raise_at_row(some, num_rows, schema)
            raise
        num_rows += len(some)
        schema = merged
    if not parts:
        return pa.table({"file_name": pa.array([], pa.string())})
    return pa.concat_tables(parts, promote_options="permissive")


def _merged(schema: pa.Schema, type_: Any) -> pa.Schema:
    return pa.unify_schemas([schema, pa.schema(list(type_))], promote_options="permissive")


def _raise_at_row(rows: list[dict[str, Any]], first: int, schema: pa.Schema) -> None:
    """Raise FormatError for the first row that does not fit the rows before it."""
    for number, row in enumerate(rows, first):
        try:
            schema = _merged(schema, pa.array([row]).type)
        except pa.ArrowException as error:
            message = f"the table of labels cannot be read: {error}"
            raise FormatError(message, record=number, hint=FORMS) from None


def _objects(text: str, limits: Limits) -> Iterator[dict[str, Any]]:
    decode = json.JSONDecoder(object_pairs_hook=_object, parse_int=_number).raw_decode
    place = _after_space(text, 0)
    is_array = text.startswith("[", place)
    end = "]" if is_array else ""
    place = _after_space(text, place + is_array)
    number = 0
    # A file without any text is not a table.
    while text[place : place + 1] != end or not (is_array or number):
        if is_array and number:
            if text[place : place + 1] != ",":
                raise json.JSONDecodeError("',' or ']' is missing", text, place)
            place = _after_space(text, place + 1)
        try:
            value, place = decode(text, place)
        except RecursionError:
            limits.check("nesting", sys.getrecursionlimit())
            raise
        if not isinstance(value, dict):
            message = f"the table of labels has a {_kind(value)} where it needs an object"
            raise FormatError(message, record=number, hint=FORMS)
        yield value
        number += 1
        place = _after_space(text, place)
    rest = _after_space(text, place + is_array)
    if rest != len(text):
        raise json.JSONDecodeError("there is text after the array", text, rest)


def _after_space(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    return place if space is None else space.end()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("an object has two values with the same name")
    return values


def _number(text: str) -> int | float:
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else float(number)


def _kind(value: object) -> str:
    kinds: dict[type, str] = {list: "list", str: "text", bool: "boolean", type(None): "null"}
    return kinds.get(type(value), "number")


def _num_elements(value: Any, limits: Limits, depth: int) -> int:
    """Count the elements of lists in a value. Numbers, texts and booleans do not count, because they need no
    columns."""
    limits.check("nesting", depth)
    is_list = isinstance(value, list)
    found = 0
    for one in value if is_list else value.values():
        if isinstance(one, (dict, list)):
            found += is_list + _num_elements(one, limits, depth + 1)
        elif one is None:
            found += is_list
    return found


def _num_columns(type_: Any) -> int:
    return 1 + sum(_num_columns(type_.field(n).type) for n in range(type_.num_fields))


def json_bytes(table: pa.Table) -> bytes:
    """Encode a table as one JSON object per line."""
    rows = (row for batch in table.to_batches(max_chunksize=4096) for row in batch.to_pylist())
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
