"""The comment that penstock writes at the front of a tar archive: the columns from which its fields were written.

It is the comment of a global PAX header, which every tar program skips. Its text is JSON:

    {"penstock": 1, "schema": base64 of an Arrow schema message, "fields": {column: field}}

with columns in the order of the schema. Python's tarfile, and therefore webdataset, expects a member after a comment.
So in an archive without records, an empty folder `__penstock__/` follows the comment. No program takes this folder for
part of a record. In an archive without a readable comment, the names of the members determine the columns.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.columns.facts import parsed
from penstock.columns.stored_schema import schema_of
from penstock.columns.types import own_types
from penstock.errors import SchemaError
from penstock.framing.streams.stream import Stream

ARCHIVE_BYTES = 10240
"""The size of an archive is a multiple of this number of bytes, a convention from tapes."""
END_BYTES = 1024
"""At least this many zeros are at the end of an archive."""
_BLOCK = 512
_MOST_BYTES = 1 << 20
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """The columns of an archive, and the field that holds each column."""

    schema: pa.Schema
    fields: dict[str, str]


def comment_of(stored: Stored) -> _core.Buffer:
    """Return the header to put at the front of an archive."""
    schema = b64encode(stored.schema.serialize().to_pybytes()).decode()
    text = json.dumps({"penstock": _VERSION, "schema": schema, "fields": stored.fields})
    if len(text) > _MOST_BYTES - 100:
        raise SchemaError("the archive's comment cannot hold this many columns")
    return _core.tar_comment(text)


def folder_behind() -> _core.Buffer:
    """Return the member that follows the comment if there are no records."""
    import tarfile  # imported only here, because nearly all shards have records

    folder = tarfile.TarInfo("__penstock__/")
    folder.type, folder.mode = tarfile.DIRTYPE, 0o755
    return _core.Buffer.from_bytes(folder.tobuf(tarfile.USTAR_FORMAT))


def stored_in(stream: Stream) -> Stored | None:
    """Return the columns in the comment at the front of a stream, or None if penstock wrote no such comment."""
    head = stream.read(0, _BLOCK)
    block = head.to_bytes()
    if len(block) < _BLOCK or block[156:157] != b"g" or not _core.is_tar_head(head):
        return None
    digits = block[124:135].strip(b" \0") or b"0"
    size = -1 if digits.strip(b"01234567") else int(digits, 8)
    if not 0 <= size <= _MOST_BYTES:
        return None
    lines = stream.read(_BLOCK, size).to_bytes()
    before, equals, text = lines.partition(b" comment=")
    if not (equals and before == b"%d" % size and len(lines) == size):
        return None
    try:
        return _parsed(parsed(text, _MOST_BYTES))
    except (ValueError, TypeError, KeyError, pa.ArrowException, OSError, AttributeError):
        return None


def _parsed(found: Any) -> Stored | None:
    if not isinstance(found, dict) or found.get("penstock") != _VERSION:  # pyright: ignore[reportUnknownMemberType]
        return None
    facts: dict[str, Any] = found
    schema = own_types(schema_of(b64decode(facts["schema"], validate=True)))
    fields: dict[str, str] = {
        name: facts["fields"][name] for name in schema.names if name in facts["fields"]
    }
    texts = all(isinstance(field, str) for field in fields.values())
    return Stored(schema, fields) if texts and len(set(schema.names)) == len(schema) else None
