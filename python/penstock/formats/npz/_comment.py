"""The comment of an npz archive, which may store Arrow's schema."""

from __future__ import annotations

import base64
import zlib

import pyarrow as pa

SCHEMA_COMMENT = b"penstock.schema "
"""The start of a comment that stores Arrow's schema. The schema follows in Base64, then a space and the CRC-32 of that
text as eight hexadecimal digits."""


def schema_comment(schema: pa.Schema) -> bytes:
    data = base64.b64encode(schema.serialize().to_pybytes())
    return SCHEMA_COMMENT + data + b" %08x" % zlib.crc32(data)
