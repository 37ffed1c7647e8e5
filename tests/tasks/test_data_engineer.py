"""A data engineer cleans 200 shards on the command line. Three of them are damaged."""

from __future__ import annotations

import json
import os
import shlex
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program

LOST = [70, 429, 1502]
KEPT = [n for n in range(2000) if n not in LOST]


def url_of(number: int) -> str:
    return f"https://a.example/{number % 1900}"


@pytest.fixture
def crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 shards of ten records as another program would write them, with three records damaged."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("crawl")
    numbers = np.arange(2000)
    rows = {
        "id": numbers,
        "url": [url_of(n) for n in range(2000)],
        "caption": [f"Bild der Größe {n}" for n in range(2000)],
        "label": numbers % 4,
    }
    ps.write(rows, "crawl/part.tfrecord", num_shards=200, index=False)
    for shard, byte in ((7, 60), (150, 270)):
        with open(shard_name(shard), "r+b") as file:
            file.seek(byte)
            [value] = file.read(1)
            file.seek(byte)
            file.write(bytes([value ^ 255]))
    os.truncate(shard_name(42), os.path.getsize(shard_name(42)) - 5)


def shard_name(number: int) -> str:
    return f"crawl/part-{number:05d}-of-00200.tfrecord"


def penstock(line: str, status: int = 0) -> Any:
    """Run one command line with `--json`, and return its parsed output."""
    words = [*shlex.split(line), "--json"]
    done = CliRunner().invoke(program, words, catch_exceptions=False)
    assert done.exit_code == status, done.output
    return json.loads(done.stdout)


def ids(path: str) -> list[int]:
    return ps.open(path).to_table(columns=["id"])["id"].to_pylist()


@pytest.mark.usefixtures("crawl")
def test_damaged_shards_are_found_looked_at_and_repaired() -> None:
    found = penstock("verify crawl", status=1)
    places = [(f["file"], f["record"], f["kind"]) for f in found["findings"]]
    assert places == [
        (shard_name(7), 0, "data_checksum"),
        (shard_name(42), 9, "truncated"),
        (shard_name(150), 2, "data_checksum"),
    ]
    layout = penstock(f"layout {shard_name(150)} --record 2", status=1)
    wrong = [
        (part["name"], part["state"])
        for region in layout["regions"]
        for part in region.get("children", [])
        if part.get("state") == "differs"
    ]
    assert wrong == [("masked crc32c of data", "differs")]
    assert penstock("repair crawl --into whole")["num_records"] == 1997
    assert penstock("verify whole")["ok"]
    assert ids("whole") == KEPT
    with open(shard_name(8), "rb") as old, open("whole/part-00008-of-00200.tfrecord", "rb") as new:
        assert old.read() == new.read()


@pytest.mark.usefixtures("crawl")
def test_repaired_shards_are_filtered_deduplicated_split_and_written_anew() -> None:
    penstock("repair crawl --into whole")

    penstock("convert whole few.tfrecord --where 'label in [0, 1] and contains(caption, \"9\")'")
    assert ids("few.tfrecord") == [n for n in KEPT if n % 4 < 2 and "9" in str(n)]

    assert penstock("dedupe whole --by url --into unique.tfrecord")["num_records"] == 1898
    first = {url_of(n): n for n in reversed(KEPT)}
    unique = sorted(first.values())
    assert ids("unique.tfrecord") == unique

    shares = "train=0.8,val=0.1,test=0.1"
    made = penstock(
        f"split whole --into 'out/{{split}}-{{shard}}.tfrecord' --shares {shares} --by url"
    )
    assert sum(split["num_records"] for split in made["splits"].values()) == 1997
    urls: dict[str, Counter[str]] = {}
    for split in ("train", "val", "test"):
        ds = ps.open("out", split=split, types={"url": "string"})
        urls[split] = Counter(ds.to_table(columns=["url"])["url"].to_pylist())
    assert sum(urls.values(), Counter[str]()) == Counter(url_of(n) for n in KEPT)
    assert not set(urls["train"]) & set(urls["val"]) | set(urls["train"]) & set(urls["test"])
    assert not set(urls["val"]) & set(urls["test"])

    penstock(
        "convert unique.tfrecord final.parquet --num-shards 8 --shuffle 7"
        " --text auto --cast label=int32 --prove"
    )
    ds = ps.open("final-*.parquet")
    types = {field.name: str(field.type) for field in ds.schema}
    assert types == {"caption": "string", "id": "int64", "label": "int32", "url": "string"}
    assert len(ds.shards) == 8
    found = ids("final-*.parquet")
    assert found != unique and sorted(found) == unique
    assert ds.head(1)["caption"].to_pylist() == [f"Bild der Größe {found[0]}"]

    penstock("convert unique.tfrecord final.tar --text caption,url --key id")
    with tarfile.open("final.tar") as archive:
        member = archive.extractfile("5.caption.txt")
        assert member is not None and member.read().decode() == "Bild der Größe 5"
