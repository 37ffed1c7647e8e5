"""Dtypes that Arrow lacks come as their bits. They keep their meaning in every container, or do not get into it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.types import DTYPE_KEY, fixed_tensors

BITS = np.arange(12, dtype=np.uint16)


def marked(values: Any, **beside: Any) -> pa.Table:
    """A table with a column of bfloat16."""
    column = values if isinstance(values, pa.Array) else fixed_tensors(values)
    field = pa.field("x", column.type, metadata={DTYPE_KEY: b"bfloat16"})
    table = pa.table([column], schema=pa.schema([field]))
    for name, other in beside.items():
        table = table.append_column(name, pa.array(other))
    return table


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.h5", "a.parquet", "a.arrow", "a.tar"])
@pytest.mark.parametrize("shape", [(12,), (4, 3)])
def test_bfloat16_comes_back_as_bfloat16(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    ps.write(marked(BITS.reshape(shape)), tmp_path / name)
    field = ps.open(tmp_path / name).schema.field("x")
    assert field.metadata == {DTYPE_KEY: b"bfloat16"}


@pytest.mark.parametrize("name", ["a.tfrecord", "a.beton", "a.msgpack", "a.rec"])
@pytest.mark.parametrize("shape", [(12,), (4, 3)])
def test_bfloat16_is_refused_where_it_would_become_integers(
    tmp_path: Path, name: str, shape: tuple[int, ...]
) -> None:
    for verb in (ps.write, ps.convert):
        source: Any = marked(BITS.reshape(shape))
        if verb is ps.convert:
            ps.write(source, tmp_path / "in.npz", overwrite=True)
            source = tmp_path / "in.npz"
        with pytest.raises(ps.SchemaError, match="bits of bfloat16") as caught:
            verb(source, tmp_path / name)
        assert caught.value.field == "x"
        assert not (tmp_path / name).exists()


def test_bfloat16_inside_structs_and_lists_is_refused(tmp_path: Path) -> None:
    inner = pa.field("y", pa.uint16(), metadata={DTYPE_KEY: b"bfloat16"})
    for type_, value in ((pa.struct([inner]), {"y": 1}), (pa.list_(inner), [1])):
        with pytest.raises(ps.SchemaError, match="bits of bfloat16"):
            ps.write(pa.table({"x": pa.array([value], type_)}), tmp_path / "a.msgpack")


def test_bfloat16_is_refused_as_new_records_and_new_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(12)}, path)
    before = path.read_bytes()
    with pytest.raises(ps.SchemaError, match="bits of bfloat16"):
        ps.append(marked(BITS), path)
    with pytest.raises(ps.SchemaError, match="bits of bfloat16"):
        ps.add_fields(path, marked(BITS).rename_columns(["y"]), into=tmp_path / "b.tfrecord")
    assert path.read_bytes() == before


def test_complex_numbers_stay_pairs_of_floats(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.array([1 + 2j, 3 - 4j], np.complex64))
    ps.convert(tmp_path / "a.npz", tmp_path / "a.tfrecord", prove=True)
    assert ps.open(tmp_path / "a.tfrecord")[1]["x"] == [3, -4]
