"""Index files of other libraries in a store: DALI's and MXNet's text indexes, wids' list of shards, MDS' index.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import penstock as ps
from remote.servers.seaweed import Seaweed

COUNT = 30
DATA = {"id": range(COUNT), "blob": [bytes([n]) * 300 for n in range(COUNT)]}


@pytest.fixture(autouse=True)
def options(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)


@pytest.fixture
def folder(prefix: str) -> str:
    return f"s3://{prefix}"


@pytest.mark.parametrize(("name", "text"), [("x.tfrecord", "x.tfrecord.idx"), ("x.rec", "x.idx")])
def test_text_indexes_are_written_checked_and_left_out(
    name: str, text: str, folder: str, prefix: str, tmp_path: Path, seaweed: Seaweed
) -> None:
    data = {"data": DATA["blob"]} if name == "x.rec" else DATA
    ps.write(data, tmp_path / name)
    ps.index(tmp_path / name, text=True)
    seaweed.client.put(f"{prefix}/{name}", (tmp_path / name).read_bytes())
    ps.index(f"{folder}/{name}", text=True)
    written = seaweed.client.get(f"{prefix}/{text}")
    assert written == (tmp_path / text).read_bytes()
    ps.index(f"{folder}/{name}", from_text=True)
    for source in (f"{folder}/", f"{folder}/x.*"):
        ds = ps.open(source)
        assert list(ds.paths) == [f"{folder}/{name}"]
        assert [skipped.path for skipped in ds.skipped_files] == [f"{folder}/{text}"]
    seaweed.client.put(f"{prefix}/{text}", written.replace(b"1", b"2"))
    with pytest.raises(ps.StaleIndexError, match="text index"):
        ps.index(f"{folder}/{name}", from_text=True)
    with pytest.raises(ps.StaleIndexError, match="text index"):
        ps.index(f"{folder}/{name}", from_text=f"{folder}/{text}")


def test_a_text_index_follows_its_object(
    folder: str, prefix: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    for place in (folder, str(tmp_path)):
        ps.write({"id": [1]}, f"{place}/x.tfrecord")
        ps.index(f"{place}/x.tfrecord", text=True)
        ps.write(DATA, f"{place}/x.tfrecord", overwrite=True)
    found = [
        seaweed.client.get(f"{prefix}/x.tfrecord.idx"),
        (tmp_path / "x.tfrecord.idx").read_bytes(),
    ]
    assert found[0] == found[1]
    assert found[0].count(b"\n") == COUNT


def test_a_list_of_wids_names_the_shards_beside_it(
    folder: str, prefix: str, seaweed: Seaweed
) -> None:
    for shard in range(3):
        ps.write(DATA, f"{folder}/s-{shard}.tar")
    shards = [{"url": f"s-{shard}.tar", "nsamples": COUNT} for shard in (0, 2)]
    listed = json.dumps({"wids_version": 1, "shardlist": shards})
    seaweed.client.put(f"{prefix}/index.json", listed.encode())
    ds = ps.open(f"{folder}/index.json")
    assert list(ds.paths) == [f"{folder}/s-0.tar", f"{folder}/s-2.tar"]
    assert len(ds) == 2 * COUNT
    with pytest.warns(UserWarning, match="left out s-1.tar"):
        assert list(ps.open(f"{folder}/").paths) == list(ds.paths)
    shards[0]["nsamples"] = COUNT + 1
    listed = json.dumps({"wids_version": 1, "shardlist": shards})
    seaweed.client.put(f"{prefix}/index.json", listed.encode())
    with pytest.raises(ps.StaleIndexError, match=r"index\.json lists"):
        len(ps.open(f"{folder}/index.json"))


def test_an_index_of_mds_names_the_shards_beside_it(
    folder: str, prefix: str, seaweed: Seaweed, corpus: Path
) -> None:
    here = corpus / "mds" / "streaming" / "naive_MDSdataset" / "26"
    for file in here.iterdir():
        seaweed.client.put(f"{prefix}/{file.name}", file.read_bytes())
    local = ps.open(here)
    there = ps.open(f"{folder}/")
    names = [Path(path).name for path in local.paths]
    assert list(there.paths) == [f"{folder}/{name}" for name in names]
    assert there.to_table() == local.to_table()
    seaweed.client.done("DELETE", f"{prefix}/{names[-1]}")
    with pytest.raises((FileNotFoundError, ps.FormatError), match=names[-1]):
        ps.open(f"{folder}/").to_table()
