"""Tables of labels as CSV. Column types are inferred, because CSV does not store them.

A column becomes numbers or booleans only if penstock would write every cell in exactly the same way. So reading text as
numbers loses nothing:

| values | column |
|---|---|
| `7`, `-12` | int64, or uint64 if needed; larger numbers are text |
| `0.5`, `1e-05`, `nan`, `inf`: as short as possible, or with 17 digits | float64 |
| `0.50`, `1.25`: all with the same number of digits after the point | float64 |
| `true` and `false`, or `True` and `False`, or `TRUE` and `FALSE` | bool |
| `007`, `+1`, `1e5`, `2020-01-01`, and everything else | string |

An empty cell is a missing value, and an empty cell in quotes is an empty text. In columns of numbers and booleans,
`""`, `NA`, `N/A`, `null` and `NULL` are missing too, and spaces around a value are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.errors import FormatError

MISSING = ("", "NA", "N/A", "null", "NULL")
NOT_FINITE = ("nan", "NaN", "inf", "-inf")
BOOLEANS = (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
_WHOLE = r"^(0|-?[1-9][0-9]*)\z"
_SHORT = re.compile(
    r"-?(0|[1-9][0-9]*)(\.0|\.[0-9]*[1-9])?|-?[1-9](\.[0-9]*[1-9])?[eE][+-][0-9]{2,3}"
)
_HEAD_BYTES = 1 << 16
_MOST_BLOCK_BYTES = (1 << 31) - 1
_MOST_DECIMALS = 100


def read_csv(data: Any, name_columns: Sequence[str]) -> pa.Table:
    """Return the rows of a CSV file, given as a pyarrow buffer. `name_columns` are the possible names of the column of
    file names."""
    _check_separator(data.slice(0, min(_HEAD_BYTES, data.size)).to_pybytes(), name_columns)
    # One block for the whole file, so that every row fits into a block.
    block = csv.ReadOptions(block_size=min(max(data.size, 1), _MOST_BLOCK_BYTES))
    parse = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(pa.BufferReader(data), block, parse) as reader:
        names = reader.schema.names
    as_written = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.binary()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    rows = csv.read_csv(pa.BufferReader(data), block, parse, as_written)
    columns: list[Any] = [_column(column.combine_chunks()) for column in rows.columns]
    return pa.Table.from_arrays(columns, names=names)


def _check_separator(head: bytes, name_columns: Sequence[str]) -> None:
    """Raise FormatError if the header names the image column only when split at a separator other than a comma."""
    lines = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").lstrip().splitlines()
    header = lines[0] if lines else ""
    for separator in ",;\t|":
        if any(name.strip(' "') in name_columns for name in header.split(separator)):
            if separator == ",":
                return
            raise FormatError(
                f"the columns of the table are separated by {separator!r}, but penstock reads only ','",
                found=header[:200],
                hint="write the table with ',' between its columns, or as Parquet or JSON lines",
            )


def _column(data: Any) -> Any:
    """Convert a column of bytes to the type of its values."""
    try:
        texts = data.cast(pa.string())
    except pa.ArrowInvalid:
        return data  # not UTF-8
    if texts.null_count == len(texts):
        return pa.nulls(len(texts))
    given = pc.utf8_trim(texts, " \t")
    given = pc.if_else(pc.is_in(given, pa.array(MISSING)), pa.scalar(None, pa.string()), given)
    if given.null_count == len(given):
        return texts
    if any(_all(pc.is_in(given, pa.array([*pair, None]))) for pair in BOOLEANS):
        return pc.equal(pc.utf8_lower(given), "true")
    are_whole = _all(pc.match_substring_regex(given, _WHOLE))
    for type_ in (pa.int64(), pa.uint64()) if are_whole else (pa.float64(),):
        try:
            values = given.cast(type_)
        except pa.ArrowInvalid:
            continue
        if are_whole or _are_floats(given.drop_null().unique().to_pylist()):
            return values
    return texts


def _all(flags: Any) -> bool:
    return bool(pc.all(flags).as_py())


def _are_floats(texts: Sequence[str]) -> bool:
    """Whether all texts use one style of writing floats."""
    texts = [text for text in texts if text not in NOT_FINITE]
    if all(map(_is_short, texts)):
        return True
    mantissa, has_exponent, _ = texts[0].partition("e")
    decimals = len(mantissa.partition(".")[2])
    fixed = f".{decimals}{'e' if has_exponent else 'f'}"
    forms = [".17g", fixed] if decimals <= _MOST_DECIMALS else [".17g"]
    return any(all(format(float(text), form) == text for text in texts) for form in forms)


def _is_short(text: str) -> bool:
    is_plain = _SHORT.fullmatch(text) is not None
    return is_plain and Decimal(text) == Decimal(repr(float(text)))


def csv_bytes(table: pa.Table) -> bytes:
    """Encode numbers, booleans and texts as CSV. Texts are quoted, and missing values are empty."""
    lines = [",".join(map(_cell, table.column_names))]
    for batch in table.to_batches(max_chunksize=4096):
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        lines += [",".join(map(_cell, row)) for row in rows]
    return "\n".join([*lines, ""]).encode()


def _cell(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"'
    return repr(value).lower()  # true, not True
