"""Converts faults from the kernels to errors, and adds hints."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from penstock.errors import (
    ChecksumError,
    FormatError,
    LimitError,
    PenstockError,
    SchemaError,
    StaleIndexError,
    TruncatedError,
    UnsupportedError,
    batch_limit,
    command,
)
from penstock.limits import Limits, raise_limit

_KINDS: dict[str, type[PenstockError]] = {
    "length_checksum": ChecksumError,
    "data_checksum": ChecksumError,
    "compression_checksum": ChecksumError,
    "truncated": TruncatedError,
    "short_tail": TruncatedError,
    "cut_trailer": TruncatedError,
    "limit": LimitError,
    "schema": SchemaError,
    "unexpected": SchemaError,
    "stale": StaleIndexError,
    "unsupported": UnsupportedError,
}


_OF_A_BATCH = ("read fewer records at once", "limit batch_bytes", "of one batch")
"""Parts of kernel messages about a batch that is too large, not about a single record."""


def kind_of(name: str) -> type[PenstockError]:
    """The error class for a kind of fault."""
    return _KINDS.get(name, FormatError)


def error_from(fault: Any, *, file: str, record: int | None) -> PenstockError:
    """Convert a fault to an error. `record` counts from 0 in the file."""
    kind = kind_of(fault.kind)
    if kind is LimitError and any(words in fault.message for words in _OF_A_BATCH):
        error = batch_limit(fault.message, file=file)
        if "batch_bytes" in fault.message:
            error.hint = f"{error.hint}; or {raise_limit('batch_bytes', ...)}"
        return error
    expected, found = fault.expected, fault.found
    if kind is ChecksumError or fault.kind == "stale":
        expected = None if expected is None else f"{expected:#010x} (stored)"
        found = None if found is None else f"{found:#010x}"
    return kind(
        fault.message,
        file=file,
        record=record,
        field=fault.field,
        byte=fault.byte,
        expected=expected,
        found=found,
        hint=_hint(fault, file),
    )


_NUMBER_KINDS = {"int64", "float"}


def _number_hint(message: str, field: str) -> str | None:
    """A hint for fields with integers in some records and floats in others."""
    found, _, wanted = message.removeprefix("holds ").partition(" values, the schema wants ")
    is_mixed = {found, wanted} == _NUMBER_KINDS
    if is_mixed or message.endswith(
        (", which float32 cannot hold exactly", ", which int64 cannot hold exactly")
    ):
        return f"open(..., types={{{field!r}: 'float64'}}), or schema= with this type"
    if message.endswith(", which float64 cannot hold exactly"):
        return f"open(..., types={{{field!r}: 'int64'}}), or schema= with this type"
    return None


_HINTS = {
    "unexpected": 'open(..., infer_records="all"), or name the columns to keep',
    "unsupported": None,
    "message": 'open(..., damage="skip") leaves such records out, raw=True gives their bytes as they are',
}


def _hint(fault: Any, file: str) -> str | None:
    kind = fault.kind
    if kind == "limit":
        named = [limit.name for limit in fields(Limits) if limit.name in fault.message]
        if fault.message == "the record is too large":
            named = ["record_bytes"]
        # Without a named limit (for example, memory ran out), raising a limit does not help.
        return raise_limit(named[0], fault.found or ...) if named else None
    if kind == "schema":
        return _number_hint(fault.message, fault.field) or command(
            "penstock", "schema", "--all", file
        )
    if kind == "stale":
        return f"{command('penstock', 'index', file)}, and open the data again"
    if kind in _HINTS:
        return _HINTS[kind]
    return command("penstock", "verify", file)
