"""Sidecars whose own checksums are correct but whose contents may be forged."""

from __future__ import annotations

import struct

import numpy as np

from penstock._core import Buffer
from penstock.framing.index import _sections as sections

HEADER = struct.Struct("<8sHBBIQQQQQQqqQI")
"""magic, version, compression, layout, num_sections, num_records, data_bytes, plain_bytes, num_points, inode, size,
mtime_ns, ctime_ns, body_bytes, crc32c of the bytes between header and body"""
ENTRY = struct.Struct("<16sQQ")


def crc32c(data: bytes) -> int:
    return Buffer.from_bytes(data).crc32c()


def sealed(data: bytes) -> bytes:
    """A sidecar with all checksums corrected, whatever its contents. A sidecar that is too short or too odd is
    returned unchanged."""
    if len(data) < HEADER.size + 4:
        return data
    fields = list(HEADER.unpack_from(data))
    num_blocks = -(-fields[13] // sections.BLOCK_BYTES)
    at = HEADER.size + 4 + ENTRY.size * fields[4]
    start = -(-(at + 4 * num_blocks) // 64) * 64
    if start > len(data):
        return data
    body = data[start:]
    blocks = [
        crc32c(body[n * sections.BLOCK_BYTES : (n + 1) * sections.BLOCK_BYTES])
        for n in range(num_blocks)
    ]
    table = data[HEADER.size + 4 : at] + np.array(blocks, "<u4").tobytes()
    table = table.ljust(start - HEADER.size - 4, b"\0")
    fields[14] = crc32c(table)
    header = HEADER.pack(*fields)
    return header + struct.pack("<I", crc32c(header)) + table + body


def with_fields(data: bytes, **changes: int) -> bytes:
    """A sidecar with different numbers in its header, such as {"num_records": 7}."""
    names = ("num_sections", "num_records", "data_bytes", "plain_bytes", "num_points", "inode",
             "size", "mtime_ns", "ctime_ns", "body_bytes")  # fmt: skip
    fields = list(HEADER.unpack_from(data))
    for name, value in changes.items():
        fields[4 + names.index(name)] = value
    return sealed(HEADER.pack(*fields) + data[HEADER.size :])
