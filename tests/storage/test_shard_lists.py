"""Names with braces, and the JSON index of wids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from fuzz.mds_shards import index_of, listed, simple
from penstock.storage.local import LocalStorage
from penstock.storage.paths import expand
from penstock.storage.shard_lists import braces
from reading import shared_path


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x{000..003}y", ["x000y", "x001y", "x002y", "x003y"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{00..10..5}", ["00", "05", "10"]),
        ("{003..000}", ["003", "002", "001", "000"]),
        ("{-1..1}", ["-1", "0", "1"]),
        ("{a,b}{1..2}", ["a1", "a2", "b1", "b2"]),
        ("{a,{b,c}d}", ["a", "bd", "cd"]),
        ("{a..c}", ["a", "b", "c"]),
        ("{,x}", ["", "x"]),
        ("{{1..2}}", ["{1}", "{2}"]),
        *((text, [text]) for text in ("a", "{}", "{x}", "a{b", "a}b", "{a,b", "${X}", "{1...3}")),
    ],
)
def test_braces_stand_for_what_webdataset_says(text: str, wanted: list[str]) -> None:
    assert braces(text) == wanted


def test_more_names_than_anybody_has_files_are_refused() -> None:
    for text in ("{0..1000000000000}", "{1..9999}" * 20, "{a,{0..999999},{0..999999}}"):
        with pytest.raises(ps.LimitError):
            braces(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for n in range(3):
        ps.write({"cls": [n] * (n + 1)}, f"s-{n:03}.tar", index=False)
    return tmp_path


def test_shards_are_named_by_braces_and_colons(folder: Path) -> None:
    assert len(ps.open("s-{000..002}.tar")) == 6
    assert len(ps.open("s-{000..001}.tar::s-002.tar")) == 6
    with pytest.raises(FileNotFoundError):
        ps.open("s-{000..003}.tar")
    with pytest.raises(FileNotFoundError):
        ps.open(["s-{000..002}.tar"])
    (folder / "odd{1..2}.tar").write_bytes((folder / "s-000.tar").read_bytes())
    assert len(ps.open("odd{1..2}.tar")) == 1


def test_no_command_is_ever_run(folder: Path) -> None:
    for name in ("pipe:touch ran", "s-000.tar::pipe:touch ran"):
        with pytest.raises(ps.UnsupportedError, match="command"):
            ps.open(name)
    assert not (folder / "ran").exists()


def index(folder: Path, **facts: Any) -> str:
    shards = [{"url": f"s-{n:03}.tar", "nsamples": n + 1} for n in (2, 0, 1)]
    path = folder / "index.json"
    path.write_text(json.dumps({"wids_version": 1, "shardlist": shards, **facts}))
    return str(path)


def test_an_index_names_its_shards_in_order(folder: Path) -> None:
    dataset = ps.open(index(folder))
    assert [Path(path).name for path in dataset.paths] == ["s-000.tar", "s-001.tar", "s-002.tar"]
    assert [record["cls"] for record in dataset] == [0, 1, 1, 2, 2, 2]
    golden = shared_path("specs", "golden", "webdataset", "index.json")
    assert len(ps.open(str(golden), index="never")) == 5
    (folder / "sub").mkdir()
    outer = folder / "sub" / "outer.json"
    outer.write_text(json.dumps({"datasets": [{"shardlist": []}], "wids_version": 1}))
    with pytest.raises(ps.FormatError, match="names no shards"):
        ps.open(str(outer))


def test_an_index_in_parts_is_followed_one_level(folder: Path) -> None:
    inner = index(folder)
    outer = folder / "outer.json"
    outer.write_text(json.dumps({"wids_version": 1, "datasets": [{"source_url": "index.json"}]}))
    assert len(ps.open(str(outer))) == len(ps.open(inner)) == 6


def test_an_index_that_counts_otherwise_is_stale(folder: Path) -> None:
    shards = [{"url": "s-000.tar", "nsamples": 7}]
    with pytest.raises(ps.StaleIndexError, match="does not have the number") as caught:
        len(ps.open(index(folder, shardlist=shards)))
    assert (caught.value.expected, caught.value.found) == (7, 1)


@pytest.mark.parametrize(
    "url",
    ["../s.tar", "/etc/passwd", "http://x/s.tar", "pipe:cat s.tar", "a/../../s.tar", "gs://b"],
)
def test_an_index_leads_nowhere_else(url: str, folder: Path) -> None:
    with pytest.raises(ps.UnsupportedError, match="not in its folder"):
        ps.open(index(folder, shardlist=[{"url": url, "nsamples": 1}]))
    with pytest.raises(ps.UnsupportedError, match="not in its folder"):
        ps.open(index(folder, base="..", shardlist=[{"url": "s-000.tar", "nsamples": 1}]))


@pytest.mark.parametrize(
    "facts",
    [
        {"shardlist": 7},
        {"shardlist": [7]},
        {"shardlist": [{"url": 7, "nsamples": 1}]},
        {"shardlist": [{"url": "s-000.tar", "nsamples": -1}]},
        {"shardlist": [{"url": "s-000.tar", "nsamples": True}]},
        {"shardlist": []},
        {"base": 7},
        {"datasets": 7},
    ],
)
def test_an_index_that_is_malformed_is_refused(facts: dict[str, Any], folder: Path) -> None:
    with pytest.raises(ps.FormatError):
        ps.open(index(folder, **facts))
    with pytest.raises(ps.UnsupportedError):
        ps.open(index(folder, wids_version=2))


def test_other_json_is_not_an_index(folder: Path) -> None:
    for text in ("", "[1]", '{"a": 1}', "[" * 100_000):
        (folder / "x.json").write_text(text)
        assert expand("x.json", LocalStorage()).paths == ["x.json"]


def test_an_index_of_few_bytes_does_not_ask_for_much_work(folder: Path) -> None:
    (folder / "part.json").write_text('{"shardlist": []}')
    part = {"source_url": "part.json"}
    with pytest.raises(ps.FormatError, match=r"part\.json twice"):
        ps.open(index(folder, datasets=[part] * 1000))
    deep: dict[str, Any] = {"shardlist": []}
    for _ in range(300):
        deep = {"shardlist": [], "datasets": [deep]}
    with pytest.raises(ps.LimitError, match="indexes are nested"):
        ps.open(index(folder, **deep))


@pytest.mark.parametrize("name", ["\ud800", "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    for facts in (
        {"shardlist": [{"url": f"{name}.tar", "nsamples": 1}]},
        {"base": name, "shardlist": [{"url": "a.tar", "nsamples": 1}]},
    ):
        path.write_text(json.dumps({"wids_version": 1, **facts}))
        with pytest.raises(ps.FormatError):
            ps.open(path)
    (tmp_path / "a.mds").write_bytes(simple([1]))
    listing = index_of(listed("a.mds", simple([1]), 1), listed(f"{name}.mds", simple([1]), 1))
    (tmp_path / "index.json").write_bytes(listing)
    path.unlink()
    with pytest.raises(ps.FormatError, match=r"index\.json names"):
        ps.open(tmp_path)
