"""Shards without records still have their fields and types, in every format that stores them."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import webdataset

import frames
import penstock as ps
from penstock.datasets.open import open as open_dataset
from penstock.verbs.check.verify import verify
from penstock.verbs.convert.convert import convert
from penstock.verbs.write.write import write

LABELS = pa.table(
    {
        "lab": pa.array(["a", "b"]).dictionary_encode(),
        "n": pa.array([1, 2], pa.int16()),
        "x": pa.array([[1.5], [2.5, 3.5]], pa.list_(pa.float32())),
    }
)


@pytest.mark.parametrize("ending", ["h5", "tar", "tar.gz", "npz", "parquet", "arrow"])
def test_an_empty_shard_has_the_types_of_the_others(tmp_path: Path, ending: str) -> None:
    made = write(LABELS, tmp_path / f"lab-{{shard}}.{ending}", num_shards=3)
    empty, first = open_dataset(made.paths[2]), open_dataset(made.paths[0])
    assert len(empty) == 0
    assert empty.schema.types == first.schema.types
    own = {field.name: field.type for field in empty.schema}
    assert {name: own[name] for name in LABELS.schema.names} == {
        field.name: field.type for field in LABELS.schema
    }
    table: Any = pa.table(open_dataset([made.paths[2], made.paths[0], made.paths[1]]))
    assert table.select(LABELS.schema.names).to_pylist() == LABELS.to_pylist()


@pytest.mark.parametrize("ending", ["h5", "tar", "tar.gz"])
def test_a_conversion_that_chooses_nothing_keeps_the_schema(tmp_path: Path, ending: str) -> None:
    write(LABELS, tmp_path / "lab.arrow")
    target = tmp_path / f"none.{ending}"
    convert(tmp_path / "lab.arrow", target, where='lab == "zzz"')
    found = pa.table(open_dataset(target)).select(LABELS.schema.names)
    assert found.num_rows == 0
    assert found.schema.types == LABELS.schema.types


# webdataset leaves its files to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("ending", ["tar", "tar.gz"])
def test_an_empty_archive_is_one_to_every_program(tmp_path: Path, ending: str) -> None:
    target = str(tmp_path / f"none.{ending}")
    write(LABELS.slice(0, 0), target, index=False)
    assert verify(target).ok
    with tarfile.open(target) as archive:
        assert not any(member.isfile() for member in archive)
    assert not list(webdataset.WebDataset(target, shardshuffle=False, empty_check=False))
    assert Path(target).stat().st_size == 10240 or ending == "tar.gz"


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("empty", [0, 1])
def test_a_set_may_have_compressed_shards_without_records(
    tmp_path: Path, compress: Callable[[bytes], bytes], empty: int
) -> None:
    """Beam writes such shards, under names that do not reveal the format."""
    for shard in (0, 1):
        data = b"" if shard == empty else frames.file_of([b"a", b"b"])
        (tmp_path / f"x-0000{shard}-of-00002").write_bytes(compress(data))
    assert len(ps.open(f"{tmp_path}/x@2", index="never", raw=True)) == 2
    assert ps.verify(f"{tmp_path}/x@2").ok
