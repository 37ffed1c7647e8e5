"""Dtypes that Arrow lacks are read as their bits. They keep their meaning in every format, or the format refuses
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.types import DTYPE_KEY, fixed_tensors

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
def test_bfloat16_is_refused_if_it_would_become_integers(
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
    assert ps.open(tmp_path / "a.tfrecord")[1]["x"].tolist() == [3, -4]


HOLDING = ["a.npy", "a.npz", "a.h5", "a.parquet", "a.arrow", "a.tar"]
WAVES = (np.arange(12) * (1 - 2j)).reshape(6, 2)


@pytest.mark.parametrize("name", HOLDING)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_arrays_are_written_and_loaded_as_complex(
    tmp_path: Path, name: str, dtype: str
) -> None:
    for values in (
        WAVES.astype(dtype),
        WAVES[:, 0].astype(dtype),
        WAVES.astype(f">{dtype[0]}{8 if dtype == 'complex64' else 16}"),
    ):
        ps.write({"x": values}, tmp_path / name, overwrite=True)
        dataset = ps.open(tmp_path / name)
        loader = ps.Loader(
            dataset, 4, order=ps.Shuffled(seed=1), drop_last=False, record_numbers="n"
        )
        for batch in loader:
            found = batch[dataset.schema.names[0]]
            assert found.dtype == dtype
            assert (found == values[batch["n"]]).all()
            found += 1  # every array of a batch can be written to


@pytest.mark.parametrize("name", HOLDING)
def test_arrays_of_ml_dtypes_bfloat16_are_written_and_loaded(tmp_path: Path, name: str) -> None:
    for shape in ((12,), (4, 3)):
        values = np.arange(-6, 6).reshape(shape).astype(ml_dtypes.bfloat16)
        ps.write({"x": values}, tmp_path / name, overwrite=True)
        dataset = ps.open(tmp_path / name)
        (column,) = dataset.schema.names
        assert dataset.schema.field(column).metadata == {DTYPE_KEY: b"bfloat16"}
        for how in ({}, {"cache": "memory"}):
            batch = next(iter(ps.Loader(dataset, len(values), **how)))
            assert batch[column].dtype == np.uint16
            assert (batch[column].view(ml_dtypes.bfloat16) == values).all()


def test_a_masked_array_of_complex_numbers_is_refused(tmp_path: Path) -> None:
    masked = np.ma.MaskedArray([1j, 2j], mask=[True, False])
    with pytest.raises(ps.SchemaError, match="x"):
        ps.write({"x": masked}, tmp_path / "a.npz")
