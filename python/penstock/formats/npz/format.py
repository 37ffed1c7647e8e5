"""npz: a zip archive of npy files, as a table whose fields are its arrays. Specification: numpy.savez, and
`zip_directory.py` for the archive.

    bytes        what
    per array    a zip member "name.npy", stored or deflated, that is an npy file
    end          the zip directory

The table has all arrays that have a first axis. They must have the same length; if they differ, select some with
`arrays=`. Arrays without axes become metadata of the schema, and members other than ".npy" are skipped. A column that
no single array can hold is stored as several arrays, whose names have endings such as `#offsets`, see `_columns.py`.
Stored arrays are read in place, or mapped. Deflated arrays are inflated once (`members.py`).
With `record="file"` the whole file is one record (`_whole.py`).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.columns.stored_schema import schema_of
from penstock.contract.format import (
    Format,
    FormatInfo,
    Options,
    SkippedRegion,
    Writer,
    check_record,
)
from penstock.contract.regions import Region
from penstock.errors import (
    ChecksumError,
    PenstockError,
    SchemaError,
    UnsupportedError,
    raise_unless_damage,
)
from penstock.formats.npz._checks import MemberCheck
from penstock.formats.npz._columns import table_of
from penstock.formats.npz._comment import SCHEMA_COMMENT
from penstock.formats.npz._whole import FILE_NAME, FileName, check_whole, whole_column
from penstock.formats.npz.members import MEMORY_BYTES, InflatedPlace, inflated
from penstock.formats.npz.zip_directory import DEFLATED, STORED, Directory, Member, read_directory
from penstock.formats.numpy.arrays import (
    ArraysReader,
    FilePlace,
    Place,
    StoredArray,
    StoredColumn,
    check_size,
)
from penstock.formats.numpy.npy_header import Header, parse_header
from penstock.limits import Limits
from penstock.storage.base import Sink, Source

MOST_SCALAR = 1 << 12
"""The maximum bytes of an array without axes that becomes metadata."""


@dataclass(frozen=True, slots=True)
class NpzReadOptions:
    """Options for reading npz."""

    arrays: Sequence[str] | None = None
    """The arrays in the table; None for all that have a first axis."""
    record: str = "row"
    """"row": each row of the arrays is a record, so they must be of one length. "file": the file is one record, and each
    array is a value of its own shape."""


class NpzFormat(Format):
    """npz as a penstock format."""

    info = FormatInfo(
        "npz",
        (".npz",),
        holds_structs=False,
        holds_decimals=False,
        checksums="CRC-32 of each array",
        can_map=True,
        compressions=("deflate",),
        whole_dictionaries=("*",),
    )
    read_options = NpzReadOptions

    @property
    def write_options(self) -> type:
        from penstock.formats.npz.writer import NpzOptions

        return NpzOptions

    def sniff(self, head: bytes, size: int) -> bool:
        length = int.from_bytes(head[26:28], "little")
        return size > 100 and head[:4] == b"PK\3\4" and head[30 : 30 + length].endswith(b".npy")

    def open(self, source: Source, options: Options) -> ArraysReader:
        """Read the archive's directory and the header of each array.

        Raises:
            FormatError, TruncatedError, LimitError: the file is not an npz file, or a size exceeds a limit.
            UnsupportedError: an array holds objects, a member is encrypted, or raw=True.
            SchemaError: the arrays differ in length, or a field of schema= is not in the file.
        """
        own = self.own_options(options)
        if own.record not in ("row", "file"):
            raise ValueError(f"record={own.record!r} is not 'row' or 'file'")
        try:
            directory = read_directory(source, options.limits)
            return _open(source, options, directory, own)
        except PenstockError as error:
            raise error.at(file=source.path) from None

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.npz._regions import archive

        yield from archive(source, record, options.limits)
        try:
            num_records = self.open(source, options).num_records
        except PenstockError as error:
            raise_unless_damage(error)
            return  # the arrays do not form a table, so there are no records to count
        check_record(record, num_records)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.npz.writer import NpzWriter

        return NpzWriter(sink, schema, options)


def _open(
    source: Source, options: Options, directory: Directory, own: NpzReadOptions
) -> ArraysReader:
    members = _chosen(directory, own.arrays)
    is_whole = own.record == "file"
    in_memory = _in_memory(members)
    checks: list[MemberCheck] = []
    arrays: dict[str, StoredArray] = {}
    values: dict[str, StoredColumn] = {}
    metadata: dict[bytes, bytes] = {}
    for name, member in members.items():
        try:
            header, place = _array(source, member, options.limits, in_memory=name in in_memory)
            check = None
            if isinstance(place, FilePlace):
                checks.append(MemberCheck(source, member, header.start, place.size))
                check = checks[-1] if options.verifies else None
            if is_whole:
                check_whole(header, options.limits)
                values[name] = whole_column(name, header, place, source.path, check)
            elif header.shape:
                arrays[name] = StoredArray(header, place, source.path, check)
            elif (value := _text_of(header, place, check)) is not None:
                metadata[name.encode("utf-8", "replace")] = value
        except PenstockError as error:
            raise error.at(field=name) from None
    if is_whole:
        values.setdefault(FILE_NAME, FileName(source.path))
        columns, num_records = list(values.values()), 1
        comment, lost = b"", ()  # it would be about the rows
    else:
        columns, num_records = table_of(arrays, options.limits)
        comment, lost = _checked_comment(directory.comment, source, options)
    return ArraysReader(
        columns,
        num_records,
        source,
        options,
        metadata or None,
        span=(0, source.size),
        compression="deflate" if DEFLATED in {m.method for m in members.values()} else "",
        restore=partial(_restored, comment=comment),
        lost=lost,
        checks=checks,
        arrays=arrays,
    )


def _chosen(directory: Directory, chosen: Sequence[str] | None) -> dict[str, Member]:
    """Return the members of these arrays, including the arrays that form a column with one of these names."""
    members = {m.name[:-4]: m for m in directory.members if m.name.endswith(".npy")}
    if chosen is None:
        return members
    if isinstance(chosen, str):
        raise TypeError("arrays must be a list of names")
    found: dict[str, Member] = {}
    for name in chosen:
        parts = {n: m for n, m in members.items() if n == name or n.startswith(f"{name}#")}
        if not parts:
            known = ", ".join(list(members)[:20])
            raise SchemaError(f"no such array; the file has: {known}", field=name)
        found |= parts
    return found


def _in_memory(members: dict[str, Member]) -> set[str]:
    """Return the deflated members to inflate into memory: the first ones that fit."""
    found: set[str] = set()
    left = MEMORY_BYTES
    for name, member in members.items():
        if member.method == DEFLATED and member.plain_bytes <= left:
            left -= member.plain_bytes
            found.add(name)
    return found


def _text_of(header: Header, place: Place, check: MemberCheck | None) -> bytes | None:
    """Return an array without axes as text. None if it is large, or is not text, a number or a time."""
    size = header.dtype.itemsize
    if size > MOST_SCALAR or header.dtype.kind not in "biufcSUmM":
        return None
    if check is not None:
        check.verify()
    value = place.read(0, size).view(header.dtype)[0] if size else b""
    return bytes(value) if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _array(
    source: Source, member: Member, limits: Limits, *, in_memory: bool
) -> tuple[Header, Place]:
    """Return the header of a member, and where its values are."""
    if member.method == STORED:

        def read(start: int, length: int) -> bytes:
            length = min(length, member.plain_bytes - start)
            return source.read(member.start + start, length).to_bytes()

        header = parse_header(read)
        size = check_size(header, member.plain_bytes, member.start, limits)
        return header, FilePlace(source, member.start + header.start, size)
    if member.method != DEFLATED:
        raise UnsupportedError(
            f"a member has compression method {member.method}; penstock reads stored and deflated members",
            byte=member.header_start,
        )
    limits.check("member_bytes", member.plain_bytes)
    front = bytearray()
    parts = inflated(source, member)

    def read_front(start: int, length: int) -> bytes:
        while len(front) < start + length and (part := next(parts, None)) is not None:
            front.extend(part)
        return bytes(front[start : start + length])

    header = parse_header(read_front)
    parts.close()
    check_size(header, member.plain_bytes, member.start, limits)
    return header, InflatedPlace(source, member, header.start, in_memory=in_memory)


def _checked_comment(
    comment: bytes, source: Source, options: Options
) -> tuple[bytes, tuple[SkippedRegion, ...]]:
    """Return the schema in the archive's comment, as Base64, or nothing if there is none. If it is damaged, raise
    ChecksumError or skip it."""
    data, crc = comment[len(SCHEMA_COMMENT) : -9], comment[-9:]
    is_right = len(data) > 0 and crc == b" %08x" % zlib.crc32(data)
    if is_right or not comment.startswith(SCHEMA_COMMENT):
        return data if is_right else b"", ()
    start = source.size - len(comment)
    if options.schema is not None and not options.settled:
        return b"", ()  # the caller gives the types
    message = "the types in the archive's comment are damaged"
    if options.damage == "error":
        raise ChecksumError(message, byte=start, hint='open(..., damage="skip"), or schema=')
    return b"", (SkippedRegion(source.path, start, source.size, 0, message),)


def _restored(stored: Any, comment: bytes) -> Any:
    """Return the schema in the archive's comment if the arrays fit it, else `stored`."""
    if not comment:
        return stored
    try:
        schema: Any = schema_of(base64.b64decode(comment, validate=True))
        by_name = {field.name: field for field in schema}
        fields: list[Any] = []
        for field in stored:
            kept = by_name.get(field.name, field)
            if kept.type != field.type:
                pa.nulls(0, field.type).cast(kept.type)
            fields.append(kept.with_nullable(True))
        return pa.schema(fields, schema.metadata or stored.metadata)
    except (pa.ArrowException, ValueError, OSError, TypeError):
        return stored  # another program wrote the comment, or it belongs to other arrays
