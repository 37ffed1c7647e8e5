"""Verbs, the loader and the command line read from a store as from files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from remote.servers.seaweed import Seaweed

COUNT = 4000
SHARDS = 4


@pytest.fixture
def url(tmp_path: Path, seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Four shards in a store, whose options are in the environment."""
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    data = pa.table({"id": range(COUNT), "text": [f"record {n}" * (n % 7) for n in range(COUNT)]})
    ps.write(data, f"s3://{prefix}/x.tfrecord", num_shards=SHARDS)
    return f"s3://{prefix}/x@{SHARDS}.tfrecord"


def test_the_index_beside_an_object_is_used(url: str, prefix: str, seaweed: Seaweed) -> None:
    bucket, _, folder = prefix.partition("/")
    keys = seaweed.client.keys(bucket, folder)
    assert sum(key.endswith(".penstock") for key in keys) == SHARDS
    ds = ps.open(url)
    assert len(ds) == COUNT
    assert ds[COUNT - 1]["id"] == COUNT - 1
    seaweed.client.delete(f"{prefix}/.x-00001-of-00004.tfrecord.penstock")
    assert len(ps.open(url)) == COUNT


def test_indexes_are_kept_in_a_folder_of_a_store(
    url: str, prefix: str, seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bucket, _, folder = prefix.partition("/")
    for _ in range(2):
        assert ps.open(url, index=f"s3://{prefix}/indexes")[COUNT - 1]["id"] == COUNT - 1
    assert len(seaweed.client.keys(bucket, f"{folder}/indexes/")) == SHARDS
    assert not list(tmp_path.glob("s3:*"))
    ps.write({"id": [1]}, "here.tfrecord", index=False)
    with pytest.raises(ps.UnsupportedError, match="cannot be kept in an object store"):
        len(ps.open("here.tfrecord", index=f"s3://{prefix}/indexes"))


def test_a_loader_resumes_on_a_store(url: str) -> None:
    def loader() -> ps.Loader:
        return ps.Loader(ps.open(url), batch_size=64, order=ps.Shuffled(seed=3), columns=["id"])

    first = loader()
    found = [batch["id"] for batch in first]
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(COUNT))
    again = loader()
    steps = iter(again)
    for _ in range(10):
        next(steps)
    state = again.state_dict()
    resumed = loader()
    resumed.load_state_dict(state)
    for mine, theirs in zip(resumed, found[10:], strict=True):
        assert np.array_equal(mine["id"], theirs)


def test_a_blocked_loader_reads_every_record(url: str) -> None:
    loader = ps.Loader(ps.open(url), batch_size=64, order=ps.Blocked(seed=1), columns=["id"])
    assert sorted(np.concatenate([batch["id"] for batch in loader])) == list(range(COUNT))


def test_conversion_from_and_to_a_store(url: str, tmp_path: Path, prefix: str) -> None:
    ps.convert(url, tmp_path / "here.parquet")
    assert ps.open(tmp_path / "here.parquet").to_table()["id"].to_pylist() == list(range(COUNT))
    ps.write(ps.open(url).filter("id % 2 == 0"), f"s3://{prefix}/half.parquet")
    assert len(ps.open(f"s3://{prefix}/half.parquet")) == COUNT // 2


def test_checks_of_a_store(url: str, tmp_path: Path, prefix: str, seaweed: Seaweed) -> None:
    assert ps.verify(url).num_records == COUNT
    body = bytearray(seaweed.client.get(f"{prefix}/x-00002-of-00004.tfrecord"))
    body[5000] ^= 1
    seaweed.client.put(f"{prefix}/bad.tfrecord", bytes(body))
    bad = f"s3://{prefix}/bad.tfrecord"
    report = ps.verify(bad)
    assert not report.ok and report.findings[0].file == bad
    assert len(ps.open(bad, damage="skip").to_table()) == COUNT // SHARDS - 1
    saved = ps.repair(bad, into=tmp_path / "saved.tfrecord")
    assert saved.num_records == COUNT // SHARDS - 1
    assert ps.diff(url, url).equal
    assert ps.layout(bad).num_bytes == len(body)


def test_verbs_that_change_objects_say_what_works(url: str) -> None:
    for call in (
        lambda: ps.append({"id": [1], "text": ["a"]}, ps.open(url).paths[0]),
        lambda: ps.drop_fields(url, ["text"], in_place=True),
    ):
        with pytest.raises(ps.UnsupportedError) as refused:
            call()
        assert refused.value.hint is not None


@pytest.mark.parametrize(
    "words",
    [["info"], ["head"], ["stats"], ["verify"], ["schema"], ["head", "--where", "id > 3998"]],
)
def test_commands(url: str, words: list[str]) -> None:
    command = [sys.executable, "-m", "penstock", words[0], url, *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_repaired_object_goes_into_a_store(url: str, prefix: str, seaweed: Seaweed) -> None:
    body = bytearray(seaweed.client.get(f"{prefix}/x-00002-of-00004.tfrecord"))
    body[5000] ^= 1
    seaweed.client.put(f"{prefix}/bad.tfrecord", bytes(body))
    ps.repair(f"s3://{prefix}/bad.tfrecord", into=f"s3://{prefix}/saved.tfrecord")
    assert len(ps.open(f"s3://{prefix}/saved.tfrecord")) == COUNT // SHARDS - 1


def test_objects_of_one_name_are_repaired_into_folders_and_none_over_itself(
    url: str, prefix: str, seaweed: Seaweed
) -> None:
    body = seaweed.client.get(f"{prefix}/x-00002-of-00004.tfrecord")
    for folder in ("a", "b"):
        seaweed.client.put(f"{prefix}/{folder}/x.tfrecord", body)
    sources = [f"s3://{prefix}/{folder}/x.tfrecord" for folder in ("a", "b")]
    made = ps.repair(sources, into=f"s3://{prefix}/saved/")
    assert made.paths == tuple(f"s3://{prefix}/saved/{folder}/x.tfrecord" for folder in ("a", "b"))
    with pytest.raises(ValueError, match="over itself"):
        ps.repair(sources[0], into=sources[0], overwrite=True)
