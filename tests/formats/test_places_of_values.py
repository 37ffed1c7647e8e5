"""Errors about a value of a TFRecord name its record and the record's offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import frames
import penstock as ps
from penstock import features

TEXT = pa.string()


def error_of(path: Path, schema: Any) -> ps.SchemaError:
    with pytest.raises(ps.SchemaError) as caught:
        list(ps.open(path, schema=schema, index="never").scan())
    return caught.value


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(
    ("values", "type_", "bad"),
    [
        ([b"a"] * 5 + [b"\xff"], TEXT, 5),
        ([[b"a", b"b"]] * 5 + [[b"c", b"\xff"]], pa.list_(TEXT), 5),
        ([[b"a", b"\xff"]] + [[b"c", b"d"]] * 5, pa.list_(TEXT), 0),
        ([[], [b"a", b"b", b"c"], [], None, [b"\xff"], []], pa.list_(TEXT), 4),
        ([[b"a", b"b"], [b"c", b"d"], [b"e", b"\xff"]], pa.list_(TEXT, 2), 2),
    ],
)
def test_a_value_that_is_not_text_is_reported_with_its_record(
    tmp_path: Path, values: list[Any], type_: Any, bad: int, compression: str | None
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write(pa.table({"t": values}), path, index=False, compression=compression)
    payloads = [one["record"] for one in pa.table(ps.open(path, raw=True)).to_pylist()]
    error = error_of(path, pa.schema({"t": type_}))
    assert "not UTF-8" in error.message
    assert (error.record, error.field) == (bad, "t")
    assert error.byte == frames.starts_of(payloads)[bad] + 12


def test_a_fault_in_a_taken_record_is_reported_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"t": [b"a", b"b", b"\xff", b"c"]}, path)
    ds = ps.open(path, schema={"t": features.FixedLen([], "string")})
    assert ds.take([3, 2])["t"].to_pylist() == [b"c", b"\xff"]
    with pytest.raises(ps.SchemaError) as caught:
        ps.open(path, schema=pa.schema({"t": TEXT})).take([3, 2, 0])
    assert caught.value.record == 2
    assert caught.value.byte is not None
    assert caught.value.byte > 12
