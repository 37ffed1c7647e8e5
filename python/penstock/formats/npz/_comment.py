"""The comment of an npz archive, which may keep Arrow's schema."""

from __future__ import annotations

import base64
import zlib

import pyarrow as pa

SCHEMA_COMMENT = b"penstock.schema "
"""Before Arrow's schema in the archive's comment. The schema is in Base64; a space and the CRC-32 of that
in eight hexadecimal digits follow."""


def schema_comment(schema: pa.Schema) -> bytes:
    """Return the comment that stores a schema in an archive."""
    data = base64.b64encode(schema.serialize().to_pybytes())
    return SCHEMA_COMMENT + data + b" %08x" % zlib.crc32(data)
