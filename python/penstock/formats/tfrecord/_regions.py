"""The parts of a TFRecord frame."""

from __future__ import annotations

from collections.abc import Iterator

from penstock import _core
from penstock.contract.regions import Region, checksum, cut, fields, text_of
from penstock.framing.framings import TFRECORD
from penstock.payloads.example.regions import example_regions


def frame(data: bytes, start: int) -> Iterator[Region]:
    """The parts of a frame that starts at this byte."""
    (length,) = fields(data, start, ("length", "Q"))
    yield length
    yield _checked(data, start, 8, "masked crc32c of length", data[:8])
    payload = data[12 : 12 + length.value]
    children = example_regions(payload, start + 12)
    yield Region(start + 12, len(payload), "data", text_of(payload), children=children)
    if len(payload) < length.value:
        raise cut("a record", start + len(data), length.value, len(payload))
    yield _checked(data, start, 12 + len(payload), "masked crc32c of data", payload)


def _checked(data: bytes, start: int, at: int, name: str, of: bytes) -> Region:
    (stored,) = fields(data[at:], start + at, (name, "I"))
    computed = TFRECORD.checksum(_core.Buffer.from_bytes(of).crc32c())
    return checksum(start + at, 4, name, stored.value, computed)
