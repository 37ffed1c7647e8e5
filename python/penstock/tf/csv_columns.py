"""`tf.io.decode_csv`: lines of CSV as columns, by RFC 4180."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.dtypes import as_dtype, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.number_texts import number_of
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.text_values import strings, text_of


def _placeholders(records: Any, record_defaults: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
    kinds = [convert_to_tensor(default).dtype for default in record_defaults]
    return [probing.array(np.shape(records), kind).view(Tensor) for kind in kinds]


@probing.instead(_placeholders)
def decode_csv(
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Tensor]:
    r"""Lines of CSV as one tensor for each column.

    Args:
        records: the lines, strings of any shape.
        record_defaults: for each column the value of an empty field: a number, a string or a tensor with one value, or
            an empty tensor if the field is required. Its dtype (float32, float64, int32, int64 or string) is the dtype
            of the column.
        field_delim: the character between fields.
        use_quote_delim: whether fields may be quoted.
        na_value: a text that also counts as an empty field.
        select_cols: the columns to read, in order.
        name: ignored.

    Returns:
        A tensor of the shape of `records` for each column.

    Raises:
        InvalidArgumentError: a line has another number of fields, a required field is empty, or a field that must be a
            number is not.

    Example:
        >>> import penstock.tf as tf
        >>> [c.numpy() for c in tf.io.decode_csv('1,"a, b",', [0, "", 2.5])]
        [np.int32(1), b'a, b', np.float32(2.5)]
    """
    given = strings(records)
    defaults = [convert_to_tensor(default) for default in record_defaults]
    chosen = None if select_cols is None else [int(c) for c in select_cols]
    columns = [np.empty(given.size, d.dtype.dtype) for d in defaults]
    between = text_of(field_delim)
    for number, line in enumerate(given.ravel().tolist()):
        fields = fields_of(line, between.encode(), use_quote_delim)
        if chosen is not None:
            _check_count(number, len(fields), max(chosen, default=-1) + 1, at_least=True)
            fields = [fields[c] for c in chosen]
        _check_count(number, len(fields), len(defaults))
        for place, (field, default) in enumerate(zip(fields, defaults, strict=True)):
            columns[place][number] = value_of(field, default, text_of(na_value), number, place)
    return [column.reshape(given.shape).view(Tensor) for column in columns]


def _check_count(number: int, found: int, wanted: int, at_least: bool = False) -> None:
    if found < wanted or (found != wanted and not at_least):
        raise InvalidArgumentError(
            None, None, f"Expect {wanted} fields but have {found} in record {number}"
        )


def fields_of(line: bytes, between: bytes = b",", quotes: bool = True) -> list[bytes]:
    """The fields of a line.

    Raises:
        InvalidArgumentError: a quote in the middle of a field, or a quoted field that does not end.
    """
    if not quotes or b'"' not in line:
        return line.split(between)
    fields: list[bytes] = []
    at = 0
    while True:
        if line[at : at + 1] == b'"':
            field, at = _quoted(line, at + 1, between)
        else:
            end = line.find(between, at)
            end = len(line) if end < 0 else end
            field, at = line[at:end], end
            if b'"' in field:
                raise InvalidArgumentError(None, None, "Unquoted fields cannot have quotes inside")
        fields.append(field)
        if at >= len(line):
            return fields
        at += len(between)


def _quoted(line: bytes, at: int, between: bytes) -> tuple[bytes, int]:
    """A quoted field, and the position after it."""
    found = bytearray()
    while True:
        end = line.find(b'"', at)
        if end < 0:
            raise InvalidArgumentError(None, None, "Quoted field has to end with quote")
        found += line[at:end]
        if line[end + 1 : end + 2] != b'"':
            if end + 1 < len(line) and not line.startswith(between, end + 1):
                raise InvalidArgumentError(
                    None, None, "Quoted field has to end with quote followed by delim or end"
                )
            return bytes(found), end + 1
        found += b'"'
        at = end + 2


def records_of(lines: Iterable[bytes], between: bytes, quotes: bool) -> Iterator[bytes]:
    """The records of a file of CSV, given its lines with their ends. A record ends with a line feed, a carriage return
    or both, except in a quoted field."""
    record, inside = b"", False
    for line in lines:
        if not inside and b"\r" not in line and (not quotes or b'"' not in line):
            yield line.removesuffix(b"\n")
            continue
        parts = [record] if inside else []
        for part in _PARTS.findall(line):
            parts.append(part)
            inside = quotes and _ends_inside(part, inside, between)
            if not inside:
                yield _END.sub(b"", b"".join(parts))
                parts = []
        record = b"".join(parts)
    if inside:
        yield record


_PARTS = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_END = re.compile(rb"(?:\r\n|\r|\n)\Z")


def _ends_inside(line: bytes, inside: bool, between: bytes) -> bool:
    """Whether a line ends inside a quoted field; `inside` says whether it begins there."""
    at = 0
    while True:
        if not inside and not line.startswith(b'"', at):
            at = line.find(between, at) + len(between)
            if at < len(between):
                return False
            continue
        end = line.find(b'"', at if inside else at + 1)
        if end < 0:
            return True
        inside = line.startswith(b'"', end + 1)
        at = end + 2 if inside else end + 1 + len(between)
        if not inside and not line.startswith(between, end + 1):
            return False


def value_of(field: bytes, default: Tensor, missing: str, record: int, place: int) -> Any:
    """The value of a field, or its column's default if the field is empty.

    Raises:
        InvalidArgumentError: a required field is empty, or a text is not a number.
    """
    if not field or field == missing.encode():
        if not default.size:
            raise InvalidArgumentError(
                None, None, f"Field {place} is required but missing in record {record}!"
            )
        return default.reshape(-1)[0].numpy()
    kind = as_dtype(default.dtype)
    if kind is string:
        return field
    try:
        return number_of(field, kind)
    except InvalidArgumentError:
        raise InvalidArgumentError(
            None,
            None,
            f"Field {place} in record {record} is not a valid {kind.name}: {field.decode(errors='replace')}",
        ) from None
