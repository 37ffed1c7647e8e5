"""The index: where it is stored, what it costs, and that reading any record with it takes one read."""

from __future__ import annotations

import copy
import os
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import frames
import penstock as ps
from penstock.storage import MemoryStorage
from reading import index_of, read_all, records_of
from strategies import payloads

PATH = "m.tfrecord"
WRAPS = {
    "plain": bytes,
    "gzip": frames.gzip_of,
    "members": lambda data: frames.gzip_of(data, 7),
    "zlib": frames.zlib_of,
}
per_compression = pytest.mark.parametrize("compression", list(WRAPS))


def some_payloads(count: int = 2000) -> list[bytes]:
    rng = random.Random(count)
    return [rng.randbytes(rng.choice((0, 3, 12, 13, 100, 3000))) for _ in range(count)]


PAYLOADS = some_payloads()
PLAIN = frames.file_of(PAYLOADS)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    for name, wrap in WRAPS.items():
        (folder / f"{name}.tfrecord").write_bytes(wrap(PLAIN))
    return {name: str(folder / f"{name}.tfrecord") for name in WRAPS}


@per_compression
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
def test_any_record_in_any_order(
    compression: str, mmap: bool, reopened: bool, files: dict[str, str], index_folder: str
) -> None:
    options = {"raw": True, "index": index_folder, "mmap": mmap}
    dataset = ps.open(files[compression], **options)
    if reopened:
        assert len(dataset) == len(PAYLOADS)
        dataset = ps.open(files[compression], **options)
    rng = random.Random(5)
    asked = [rng.randrange(-len(PAYLOADS), len(PAYLOADS)) for _ in range(500)]
    assert dataset.take(asked).column(0).to_pylist() == [PAYLOADS[n] for n in asked]
    assert dataset.take(np.array(asked)).column(0).to_pylist() == [PAYLOADS[n] for n in asked]
    for _ in range(20):
        number = rng.randrange(len(PAYLOADS))
        assert dataset[number] == {"record": PAYLOADS[number]}
        start, stop, step = rng.randrange(2000), rng.randrange(2000), rng.choice((-7, -1, 1, 3))
        got = dataset[start:stop:step].column(0).to_pylist()
        assert got == PAYLOADS[start:stop:step]
    assert dataset[np.int64(3)] == {"record": PAYLOADS[3]}
    assert dataset[[4, 2]].column(0).to_pylist() == [PAYLOADS[4], PAYLOADS[2]]


@per_compression
def test_the_same_records_are_read_without_an_index(
    compression: str, files: dict[str, str]
) -> None:
    dataset = ps.open(files[compression], raw=True, index="never")
    assert dataset.take([1999, 0, 77]).column(0).to_pylist() == [PAYLOADS[n] for n in (1999, 0, 77)]
    folder = os.path.dirname(files[compression])
    assert not [name for name in os.listdir(folder) if name.endswith(".penstock")]


@given(some=payloads, picks=st.lists(st.integers(0, 10_000), max_size=20))
def test_take_is_picking_from_a_list(some: list[bytes], picks: list[int]) -> None:
    for wrap in WRAPS.values():
        storage = MemoryStorage({PATH: wrap(frames.file_of(some))})
        dataset = ps.open(PATH, storage=storage, raw=True, index="never")
        asked = [pick % len(some) for pick in picks] if some else []
        assert dataset.take(asked).column(0).to_pylist() == [some[n] for n in asked]
        assert len(dataset) == len(some)


@per_compression
def test_taking_from_several_shards_keeps_the_order_asked(
    compression: str, tmp_path: Path, index_folder: str
) -> None:
    paths = []
    for shard in range(5):
        path = tmp_path / f"{shard}.tfrecord"
        part = PAYLOADS[shard * 400 : shard * 400 + 400]
        path.write_bytes(WRAPS[compression](frames.file_of(part)))
        paths.append(str(path))
    dataset = ps.open(paths, raw=True, index=index_folder)
    rng = random.Random(6)
    asked = [rng.randrange(2000) for _ in range(400)]
    assert dataset.take(asked).column(0).to_pylist() == [PAYLOADS[n] for n in asked]
    assert len(dataset) == 2000


def test_the_sidecar_is_next_to_the_data_and_small(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(PLAIN)
    dataset = ps.open(str(path), raw=True, index="beside")
    assert not index_of(tmp_path / "a.tfrecord").exists(), "opening makes no index"
    len(dataset)
    sidecar = index_of(tmp_path / "a.tfrecord")
    assert sidecar.stat().st_size <= 12 * len(PAYLOADS) + 384
    assert ps.open(str(tmp_path), raw=True).paths == (str(path),), "it is no data"


def test_if_no_sidecar_can_be_written_the_index_goes_to_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(PLAIN)
    # A folder with the sidecar's name prevents anybody, even root, from writing the sidecar.
    index_of(tmp_path / "a.tfrecord").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        dataset = ps.open(str(path), raw=True)
        assert len(dataset) == len(PAYLOADS)
        assert dataset[7]["record"] == PAYLOADS[7]
    assert len(list((tmp_path / "cache" / "penstock" / "index").iterdir())) == 1


def test_a_missing_index_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(PLAIN)
    folder = tmp_path / "not" / "yet"
    dataset = ps.open(str(path), raw=True, index=str(folder))
    assert len(dataset) == len(PAYLOADS)
    assert len(list(folder.iterdir())) == 1


def test_records_that_are_not_there_are_index_errors(files: dict[str, str]) -> None:
    dataset = ps.open(files["plain"], raw=True, index="never")
    for wrong in (len(PAYLOADS), -len(PAYLOADS) - 1, 1 << 40):
        with pytest.raises(IndexError):
            dataset[wrong]
        with pytest.raises(ps.RecordIndexError):
            dataset.take([0, wrong])
    for nonsense in ([0.5], [True], ["1"], [[1]]):
        with pytest.raises(TypeError):
            dataset.take(nonsense)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"for a column use to_table\(columns=\['record'\]\)"):
        dataset["record"]  # type: ignore[call-overload]
    assert dataset.to_table(columns=["record"]).num_rows == len(PAYLOADS)


def test_iterating_gives_dicts(files: dict[str, str]) -> None:
    dataset = ps.open(files["plain"], raw=True, index="never")
    assert [record["record"] for record in dataset] == PAYLOADS


def test_scanning_through_an_index_reads_the_same(files: dict[str, str], index_folder: str) -> None:
    for path in files.values():
        dataset = ps.open(path, raw=True, index=index_folder)
        len(dataset)
        for threads in (1, 4):
            assert records_of(dataset, threads=threads) == PAYLOADS
        again = read_all(path, index=index_folder)
        assert again.records == PAYLOADS


def test_a_pickled_dataset_keeps_its_storage_and_can_be_copied_twice() -> None:
    storage = MemoryStorage({PATH: PLAIN})
    dataset = ps.open(PATH, storage=storage, raw=True, index="never")
    for _ in range(2):
        assert pickle.loads(pickle.dumps(dataset))[3] == dataset[3]
        assert copy.copy(dataset)[3] == dataset[3]


def test_numbers_beyond_any_integer_are_not_record_numbers(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    for wrong in (2**70, -(2**70)):
        with pytest.raises(ps.RecordIndexError, match=f"no record {wrong} among 2"):
            dataset.take([0, wrong])
        with pytest.raises(ps.RecordIndexError):
            dataset[wrong]
    assert dataset.take(np.array([1, 0], dtype=object)).column(0).to_pylist() == [2, 1]


def test_truth_values_and_floats_are_not_record_numbers(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    wrong: list[Any] = [
        [1.0],
        np.array([1.0]),
        [True, 0],
        np.array([True], object),
        ["1"],
        [0, None],
    ]
    for records in [*wrong, [0.5, 1.7], np.array([0.5]), {0, 1}, [[0, 1]], 1]:
        with pytest.raises(TypeError, match="record numbers"):
            dataset.take(records)
        with pytest.raises(TypeError, match="record numbers"):
            dataset.subset(records)
    with pytest.raises(TypeError, match=r"use subset\(mask\)"):
        dataset.take([True, False])
    loader = ps.Loader(dataset, 1)
    for ask in (dataset.__getitem__, loader.__getitem__, loader.locate):
        for one in (True, np.True_, 0.5):
            with pytest.raises(TypeError, match="number"):
                ask(one)  # type: ignore[arg-type]
    big: list[Any] = [[1 << 63, -1], [np.int64(1), 1 << 70]]
    for records in big:
        with pytest.raises(ps.RecordIndexError):
            dataset.take(records)
    assert len(dataset.take([])) == 0


def test_a_subset_takes_a_mask_or_ascending_numbers(tmp_path: Path) -> None:
    ps.write({"a": [1, 2, 3]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    mask = [False, True, True]
    for records in (mask, np.array(mask), pa.array(mask), [1, 2], range(1, 3), pa.array([1, 2])):
        assert dataset.subset(records).to_table()["a"].to_pylist() == [2, 3]
    assert len(dataset.subset([])) == len(dataset.subset([False] * 3)) == 0
    with pytest.raises(ValueError, match="the mask has 2 values, but there are 3 records"):
        dataset.subset([False, True])
    for records in ([2, 0], [1, 1]):
        with pytest.raises(ValueError, match=r"must be ascending.*order= of a Loader"):
            dataset.subset(records)
        assert len(dataset.subset(np.unique(records))) == len(set(records))
    for records in ([-1, 0], [0, 3], [1 << 70]):
        with pytest.raises(ps.RecordIndexError, match=f"no record {max(records, key=abs)} among 3"):
            dataset.subset(records)


def test_take_decodes_only_the_columns_asked_for(tmp_path: Path) -> None:
    for name in ("x.tfrecord", "x.parquet"):
        ps.write({"a": [1, 2, 3], "b": [4, 5, 6]}, tmp_path / name)
        ds = ps.open(tmp_path / name)
        assert ds.take([2, 0], columns=["b"]).to_pydict() == {"b": [6, 4]}
        assert ds.take([], columns=["b"]).schema.names == ["b"]
        with pytest.raises(ps.SchemaError, match="no such column; there are: a, b"):
            ds.take([0], columns=["c"])
