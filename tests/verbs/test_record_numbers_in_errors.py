"""The record that an error names, where several passes or files count the records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.errors import FormatError, SchemaError, TruncatedError

CALLS: list[Callable[[ps.Dataset], Any]] = [
    len,
    lambda ds: ds[0],
    lambda ds: list(ds.scan()),
    lambda ds: list(ds.scan(threads=1)),
]


@pytest.mark.parametrize("format", ["tar", "msgpack", "tfrecord"])
def test_damage_behind_the_first_window_is_of_the_record_that_verify_names(
    tmp_path: Path, format: str
) -> None:
    path = tmp_path / f"x.{format}"
    rows = np.random.default_rng(0).integers(0, 256, (300, 10_000), np.uint8)
    ps.write({"x": [row.tobytes() for row in rows]}, path, index=False)
    data = path.read_bytes()
    # The record that holds this byte is cut; in a tar, the archive also has zeros at its end.
    path.write_bytes(data[: len(data) * 5 // 6 - 777])
    (fault,) = ps.verify(path).findings
    assert fault.record is not None and fault.record > 200
    for call in CALLS:
        with pytest.raises(TruncatedError) as caught:
            call(ps.open(path, index="never"))
        assert caught.value.record in (fault.record, None)


def test_a_bad_header_of_a_tar_is_of_its_record(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    ps.write({"x": [bytes(9_000)] * 300}, path, index=False)
    data = bytearray(path.read_bytes())
    place = data.index(b"000000250.x")
    data[place : place + 20] = b"\xff" * 20
    path.write_bytes(data)
    (fault,) = ps.verify(path).findings
    for call in CALLS:
        with pytest.raises(FormatError) as caught:
            call(ps.open(path, index="never"))
        assert caught.value.record == fault.record
    assert fault.record in (249, 250)


@pytest.mark.parametrize("shards", [None, 2, 3])
@pytest.mark.parametrize("exact", [False, True])
def test_a_value_that_does_not_fit_is_of_the_record_of_the_source(
    tmp_path: Path, shards: int | None, exact: bool
) -> None:
    source = tmp_path / "x.parquet"
    values = [1.0] * 50
    values[31] = 1e300
    ps.write(pa.table({"x": values}), source)
    with pytest.raises(SchemaError, match="1e\\+300 is beyond") as caught:
        ps.convert(source, tmp_path / "o.tfrecord", exact=exact, num_shards=shards)
    assert caught.value.record == 31


def test_the_value_that_an_exact_conversion_names_is_that_of_its_record(tmp_path: Path) -> None:
    source = tmp_path / "x.parquet"
    for values, message, record in (
        ([1.0, 0.1, 1e300], "would round 0.1", 1),
        ([1.0, 1e300, 0.1], "1e\\+300 is beyond", 1),
    ):
        ps.write(pa.table({"x": values}), source, overwrite=True)
        with pytest.raises(SchemaError, match=message) as caught:
            ps.convert(source, tmp_path / "o.tfrecord", exact=True)
        assert caught.value.record == record
