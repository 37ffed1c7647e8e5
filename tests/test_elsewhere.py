"""Datasets from a storage other than this machine's, and what datasets carry with them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from memory_storage import MemoryStorage

TABLE = pa.table({"id": range(100)})


def elsewhere(tmp_path: Path) -> ps.Dataset:
    ps.write(TABLE, tmp_path / "here.tfrecord", index=False)
    storage = MemoryStorage()
    storage.files["far/a.tfrecord"] = (tmp_path / "here.tfrecord").read_bytes()
    return ps.open("far/a.tfrecord", storage=storage)


@pytest.mark.parametrize("cut", [{}, {"shard_bytes": 600}, {"num_shards": 3}])
def test_what_lies_elsewhere_is_converted(cut: dict[str, int], tmp_path: Path) -> None:
    name = "a-{shard:05d}.parquet" if cut else "a.parquet"
    made = ps.convert(elsewhere(tmp_path), str(tmp_path / name), **cut)
    assert pa.table(ps.open(list(made.paths))).column("id").to_pylist() == list(range(100))


def test_a_local_file_of_the_same_name_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = elsewhere(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "a.tfrecord").write_bytes(b"")
    made = ps.convert(far, "far/a.tfrecord", overwrite=True)
    assert len(ps.open(made.paths[0])) == 100


def test_a_pickled_dataset_still_checks_the_counts_of_its_index(tmp_path: Path) -> None:
    ps.write({"__key__": ["a", "b"], "txt": ["x", "y"]}, tmp_path / "a.tar")
    index = {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 3}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    dataset = ps.open(tmp_path / "index.json")
    folder = ps.open(tmp_path)
    for same in (
        dataset,
        folder,
        pickle.loads(pickle.dumps(dataset)),
        dataset.reopened(columns=["txt"]),
    ):
        with pytest.raises(ps.StaleIndexError):
            len(same)


def test_a_pickled_dataset_has_the_limits_that_it_was_opened_with(tmp_path: Path) -> None:
    ps.write(TABLE, tmp_path / "a.tfrecord")
    limits = {"record_bytes": 1 << 20}
    dataset = ps.open(tmp_path / "a.tfrecord", limits=limits)
    limits["record_bytes"] = 1
    assert pickle.loads(pickle.dumps(dataset))[7] == {"id": 7}


def test_info_of_a_file_is_the_same_with_fields_beside_it(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord.gz")
    ps.write(TABLE, path, compression="gzip")
    before = ps.info(path)
    ps.add_fields(path, {"score": [float(n) for n in range(100)]}, name="scores")
    assert ps.info(path).shards == before.shards


@pytest.mark.parametrize("verb", [ps.verify, ps.index])
def test_a_dataset_is_no_list_of_files(verb: object, tmp_path: Path) -> None:
    ps.write(TABLE, tmp_path / "a.tfrecord")
    with pytest.raises(TypeError, match="files are a path"):
        verb(ps.open(tmp_path / "a.tfrecord"))  # type: ignore[operator]


@pytest.mark.parametrize("word", ["threads", "batch_records"])
@pytest.mark.parametrize("value", ["2", 1.5, True])
def test_counts_of_a_scan_are_whole_numbers(word: str, value: object, tmp_path: Path) -> None:
    ps.write(TABLE, tmp_path / "a.tfrecord")
    with pytest.raises(TypeError, match=f"{word} is a whole number"):
        ps.open(tmp_path / "a.tfrecord").scan(**{word: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("index", ["neverr", "nevr", "Auto"])
def test_a_slip_in_a_word_makes_no_folder(
    index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write(TABLE, "a.tfrecord", index=False)
    with pytest.raises(ValueError, match="is not 'auto' or 'never'"):
        ps.open("a.tfrecord", index=index)
    assert len(ps.open("a.tfrecord", index="mine")) == 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tfrecord", "mine"]
