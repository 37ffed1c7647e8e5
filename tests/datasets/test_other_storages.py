"""Datasets from a storage that is not a local file system, and what datasets pickle."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage import MemoryStorage
from reading import index_of

TABLE = pa.table({"id": range(100)})


def elsewhere(tmp_path: Path) -> ps.Dataset:
    ps.write(TABLE, tmp_path / "here.tfrecord", index=False)
    storage = MemoryStorage()
    storage.files["far/a.tfrecord"] = (tmp_path / "here.tfrecord").read_bytes()
    return ps.open("far/a.tfrecord", storage=storage)


@pytest.mark.parametrize("cut", [{}, {"shard_bytes": 600}, {"num_shards": 3}])
def test_remote_files_are_converted(cut: dict[str, int], tmp_path: Path) -> None:
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


def test_info_of_a_file_is_the_same_with_an_overlay(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord.gz")
    ps.write(TABLE, path, compression="gzip")
    before = ps.info(path)
    ps.add_fields(path, {"score": [float(n) for n in range(100)]}, name="scores")
    assert ps.info(path).shards == before.shards


@pytest.mark.parametrize("verb", [ps.verify, ps.index])
def test_a_dataset_is_not_a_list_of_files(verb: object, tmp_path: Path) -> None:
    ps.write(TABLE, tmp_path / "a.tfrecord")
    with pytest.raises(TypeError, match="expected a path"):
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
    with pytest.raises(ValueError, match="is not 'auto' or 'beside' or 'never'"):
        ps.open("a.tfrecord", index=index)
    assert len(ps.open("a.tfrecord", index="mine")) == 100
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tfrecord", "mine"]


Verb = Callable[[Any], object]
WRITING: dict[str, Verb] = {
    "write": lambda index: ps.write(TABLE, "b.tfrecord", index=index),
    "append": lambda index: ps.append(TABLE, "a.tfrecord", index=index),
    "convert": lambda index: ps.convert("a.tfrecord", "b.tfrecord", index=index),
    "repair": lambda index: ps.repair("a.tfrecord", into="b.tfrecord", index=index),
    "fields": lambda index: ps.add_fields("a.tfrecord", {"y": 1}, into="b.tfrecord", index=index),
}
READING: dict[str, Verb] = {
    "open": lambda index: ps.open("a.tfrecord", index=index),
    "verify": lambda index: ps.verify("a.tfrecord", index=index),
}


@pytest.mark.parametrize("verb", [*WRITING, *READING])
@pytest.mark.parametrize("index", [None, 0, 1, 3, 1.5, b"x", ["x"]])
def test_an_index_option_must_be_a_known_word_or_a_folder(
    verb: str, index: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write(TABLE, "a.tfrecord", index=False)
    words = "'auto', 'beside', 'never'" if verb in READING else "True, False"
    with pytest.raises(TypeError, match=f"index= must be {words} or a folder, not"):
        {**WRITING, **READING}[verb](index)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tfrecord"]


@pytest.mark.parametrize("verb", WRITING)
@pytest.mark.parametrize("index", ["auto", "never", "False", "None", "", "a.tfrecord"])
def test_words_of_other_verbs_make_no_folder(
    verb: str, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write(TABLE, "a.tfrecord", index=False)
    with pytest.raises(
        (ValueError, NotADirectoryError), match=r"True, False or a folder|is not True"
    ):
        WRITING[verb](index)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tfrecord"]


@pytest.mark.parametrize("verb", ["write", "convert", "repair", "fields"])
def test_an_index_goes_to_a_folder(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write(TABLE, "a.tfrecord", index=False)
    WRITING[verb](Path("kept"))
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name.startswith(".b.tfrecord.")
    assert not index_of(tmp_path / "b.tfrecord").exists()


@pytest.mark.parametrize(
    "verb", ["write", "append", "convert", "repair", "verify", "scan", "fields"]
)
@pytest.mark.parametrize(
    ("threads", "error"), [("2", TypeError), (2.0, TypeError), (0, ValueError)]
)
def test_threads_of_every_verb_are_a_whole_number(
    verb: str,
    threads: Any,
    error: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write(TABLE, "a.tfrecord", index=False)
    verbs: dict[str, Callable[[], object]] = {
        "write": lambda: ps.write(TABLE, "b.tfrecord", threads=threads),
        "append": lambda: ps.append(TABLE, "a.tfrecord", threads=threads),
        "convert": lambda: ps.convert("a.tfrecord", "b.tfrecord", threads=threads),
        "repair": lambda: ps.repair("a.tfrecord", into="b.tfrecord", threads=threads),
        "verify": lambda: ps.verify("a.tfrecord", threads=threads),
        "scan": lambda: list(ps.open("a.tfrecord").scan(threads=threads)),
        "fields": lambda: ps.add_fields("a.tfrecord", {"y": 1}, into="b.tfrecord", threads=threads),
    }
    with pytest.raises(error, match=r"threads (is a whole number|must be at least 1), not"):
        verbs[verb]()
    assert not (tmp_path / "b.tfrecord").exists()


@pytest.mark.parametrize("verb", ["write", "convert"])
@pytest.mark.parametrize("cut", ["num_shards", "shard_records", "shard_bytes"])
def test_numbers_of_numpy_cut_shards(
    verb: str, cut: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write(TABLE, "a.tfrecord", index=False)
    how: dict[str, Any] = {cut: np.int64(30)}
    wanted: dict[str, Any] = {cut: 30}
    if verb == "write":
        made, same = ps.write(TABLE, "b.tfrecord", **how), ps.write(TABLE, "c.tfrecord", **wanted)
    else:
        made = ps.convert("a.tfrecord", "b.tfrecord", **how)
        same = ps.convert("a.tfrecord", "c.tfrecord", **wanted)
    assert [path.replace("b-", "c-") for path in made.paths] == list(same.paths)
    for refused in (True, 2.0, "3", 0, np.float64(2), np.True_):
        with pytest.raises(ValueError, match=f"{cut} must be a positive whole number"):
            ps.write(TABLE, "d.tfrecord", **{cut: refused})
