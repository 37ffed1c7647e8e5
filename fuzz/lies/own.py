"""Lies for the files that penstock itself writes next to data: indexes and overlays, with corrected checksums."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pyarrow as pa

from fuzz.indexes import HEADER, crc32c, with_fields
from fuzz.lies import json_text, number, words
from fuzz.lies.tables import arrow
from penstock.framing.index import _sections as sections
from penstock.storage import MemoryStorage

_POINT = struct.Struct("<QQII")


class _Bytes:
    """A sink in memory."""

    path = "a.penstock"

    def __init__(self) -> None:
        self.data = b""

    def write_all(self, parts: list[object]) -> None:
        self.data += b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]


def index(rng: random.Random, data: bytes) -> bytes:
    """Changes a number of the header, or replaces one section of an index, with correct checksums and positions."""
    if rng.random() < 0.3:
        names = (
            "num_records",
            "data_bytes",
            "plain_bytes",
            "num_points",
            "size",
            "body_bytes",
            "num_sections",
        )
        name = rng.choice(names)
        place = {"num_sections": 4, "num_records": 5, "data_bytes": 6, "plain_bytes": 7, "num_points": 8,
                 "size": 10, "body_bytes": 13}[name]  # fmt: skip
        real = HEADER.unpack_from(data)[place]
        bits = 32 if name == "num_sections" else 64
        return with_fields(data, **{name: number(rng, real, bits)})
    kept = sections.Sections(MemoryStorage({"a": data}).source("a"))
    found = {name: part.to_bytes() for name, part in kept.read_all().items()}
    name = rng.choice([*found, "schema", "classes", "sample", "blocks", "points"])
    found[name] = _section(rng, name, found.get(name, b""), kept.facts.num_points)
    facts = kept.facts
    if name == "points" and rng.random() < 0.5:
        many = rng.choice((1, 300, 3000))
        found[name] = _points(rng, many)
        facts = facts._replace(num_points=many)
    sink = _Bytes()
    sections.write(sink, facts, list(found.items()))  # type: ignore[arg-type]
    return sink.data


def _section(rng: random.Random, name: str, old: bytes, num_points: int) -> bytes:
    if rng.random() < 0.1:
        return old[: rng.randrange(len(old) + 1)] or rng.randbytes(rng.randrange(64))
    if name == "classes":
        return json_text(rng, old or b'{"a": ["b", "c"]}')
    if name == "schema":
        return arrow(rng, old or nested_schema(rng.choice((1, 20, 60, 200))))
    if name == "points":
        return words(rng, old, 0, _POINT.size * num_points, rng.choice(("<Q", "<I")))
    return words(rng, old, 0, len(old), "<Q" if name == "starts" else "<I")


def _points(rng: random.Random, count: int) -> bytes:
    """Seek points whose windows inflate to far more than the size of a window."""
    window = zlib.compress(bytes(rng.choice((0, 32768, 1 << 20))), 9)
    table = [_POINT.pack(8 * n, n, rng.getrandbits(32), len(window)) for n in range(count)]
    return b"".join([*table, *[window] * count])


def nested_schema(depth: int) -> bytes:
    """A schema of lists of lists."""
    kind: pa.DataType = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return pa.schema({"x": kind}).serialize().to_pybytes()


_TRAILER = struct.Struct("<8sIIQQQQ12s")


def overlay(rng: random.Random, data: bytes) -> bytes:
    """Changes a number of an overlay's table or end, its schema, its facts or the bytes of a block, and corrects the
    checksums."""
    magic, version, _, num_records, blocks, schema_bytes, facts_bytes, rest = _TRAILER.unpack_from(
        data, len(data) - 64
    )
    start = len(data) - 64 - 20 * blocks - schema_bytes - facts_bytes
    body, contents = data[:start], data[start : len(data) - 64]
    table, after = contents[: 20 * blocks], contents[20 * blocks :]
    schema, facts = after[:schema_bytes], after[schema_bytes:]
    numbers = [num_records, blocks, schema_bytes, facts_bytes]
    how = rng.randrange(5)
    if how == 0:
        table = words(rng, table, 0, len(table), rng.choice(("<Q", "<I")))
    elif how == 1:
        place = rng.randrange(4)
        numbers[place] = number(rng, numbers[place])
    elif how == 2:
        facts = json_text(rng, facts)
        numbers[3] = len(facts)
    elif how == 3:
        schema = rng.choice((arrow(rng, schema), nested_schema(rng.choice((20, 60, 200)))))
        numbers[2] = len(schema)
    else:
        body = arrow(rng, body)[:start]
        ends = np.frombuffer(table, "<u8", blocks).tolist()
        sums = [crc32c(body[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
        table = table[: 16 * blocks] + np.array(sums, "<u4").tobytes()
    contents = table + schema + facts
    trailer = _TRAILER.pack(magic, version, crc32c(contents), *numbers, rest)
    return body + contents + trailer + struct.pack("<I", crc32c(trailer))
