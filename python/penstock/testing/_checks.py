"""What the laws of formats compare, and the damage that they do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from penstock.contract.format import Chunk

FLIPS = 200
"""Damaged copies of a small file that the laws read."""


def damaged_copies(data: bytes) -> Iterator[bytes]:
    """Yield truncated copies, and copies with one wrong bit, spread over the file."""
    rng = np.random.default_rng(2)
    for end in rng.integers(0, len(data), FLIPS // 4).tolist():
        yield data[:end]
    for bit in rng.integers(0, 8 * len(data), FLIPS).tolist():
        yield flipped(data, bit)


def flipped(data: bytes, bit: int) -> bytes:
    wrong = bytearray(data)
    wrong[bit // 8] ^= 1 << bit % 8
    return bytes(wrong)


def check_type(what: str, value: Any, kind: type) -> None:
    wanted = kind.__name__
    good = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    assert good, f"{what} is {value!r}, not of type {wanted}"


def check_same(found: pa.Table, wanted: pa.Table, what: str = "") -> None:
    """Check that two tables have the same columns and values; types may be wider."""
    assert found.schema.names == wanted.schema.names, (
        f"{what}columns {found.schema.names}, not {wanted.schema.names}"
    )
    assert found.num_rows == wanted.num_rows, (
        f"{what}{found.num_rows} records, not {wanted.num_rows}"
    )
    for name in wanted.schema.names:
        one, other = found.column(name).to_pylist(), wanted.column(name).to_pylist()
        pairs = enumerate(zip(one, other, strict=True))
        wrong = [n for n, pair in pairs if pair[0] != pair[1] and not is_same(*pair)]
        assert not wrong, (
            f"{what}record {wrong[0]}, column {name!r}: {one[wrong[0]]!r}, not {other[wrong[0]]!r}"
        )


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, where NaN equals NaN."""
    if isinstance(one, list) and isinstance(other, list):
        ones, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(ones) == len(others) and all(map(is_same, ones, others))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def check_ranges(chunks: Sequence[Chunk[Any]], num_bytes: int) -> None:
    """Check that the bytes of the chunks of a file are in the file, in order, and of one chunk only."""
    end = 0
    for number, chunk in enumerate(chunks):
        what = f"bytes {chunk.start_byte} to {chunk.end_byte} of chunk {number}"
        assert chunk.start_byte >= end, f"{what} begin before the end of the chunk before, {end}"
        assert chunk.end_byte <= num_bytes, f"{what} end after the file of {num_bytes} bytes"
        end = chunk.end_byte


def check_positions(found: Any, num_records: int, num_bytes: int) -> None:
    check_type("Reader.positions", found, np.ndarray)
    assert found.dtype == np.int64, f"Reader.positions are {found.dtype}, not int64"
    assert len(found) == num_records + 1, "Reader.positions are not num_records + 1 numbers"
    in_order = (np.diff(found) >= 0).all() and 0 <= found[0] and found[-1] <= num_bytes
    assert in_order, "Reader.positions are not in order, or not in the file"


def check_raises(call: Any, kind: type[Exception]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"expected a {kind.__name__}")
