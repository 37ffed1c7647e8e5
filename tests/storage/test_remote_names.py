"""Every verb treats remote files in the same way, whatever their names look like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps

NAMES = (
    "s3://bucket/x.tfrecord", "s3://bucket/*.tfrecord", "s3://bucket/**", "gs://bucket/folder/", "gs://bucket/x@8",
    "https://host/x-{000..009}.tar", "az://container/x.parquet::gs://b/y.parquet", "hf://datasets/a/b",
)  # fmt: skip
READING: dict[str, Callable[[str], Any]] = {
    "open": ps.open,
    "open a list": lambda name: ps.open([name]),
    "verify": ps.verify,
    "index": ps.index,
    "stats": ps.stats,
    "schemas": ps.schemas,
    "convert": lambda name: ps.convert(name, "out.parquet"),
    "repair": lambda name: ps.repair(name, into="out.tfrecord"),
    "append": lambda name: ps.append({"a": [1]}, name),
    "diff": lambda name: ps.diff(name, name),
    "add_fields": lambda name: ps.add_fields(name, {"b": [1]}),
    "drop_fields": lambda name: ps.drop_fields(name, ["b"], in_place=True),
}
WRITING: dict[str, Callable[[str], Any]] = {
    "write": lambda name: ps.write({"a": [1]}, name),
    "convert to": lambda name: ps.convert("a.tfrecord", name),
    "repair into": lambda name: ps.repair("a.tfrecord", into=name),
    "add_fields into": lambda name: ps.add_fields("a.tfrecord", {"b": [1]}, into=name),
}


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"a": [1]}, "a.tfrecord")


def _check(call: Callable[[str], Any], name: str) -> None:
    with pytest.raises(ps.UnsupportedError, match="only files on this machine") as refused:
        call(name)
    assert refused.value.hint is not None and "copy the files" in refused.value.hint


@pytest.mark.parametrize("name", NAMES)
def test_reading(name: str) -> None:
    for call in READING.values():
        _check(call, name)


@pytest.mark.parametrize("name", ["s3://bucket/x.tfrecord", "gs://bucket/folder/x.tfrecord"])
def test_writing(name: str) -> None:
    for call in WRITING.values():
        _check(call, name)


def test_the_hint_of_a_file_url_works(tmp_path: Path) -> None:
    with pytest.raises(ps.UnsupportedError) as refused:
        ps.open((tmp_path / "a.tfrecord").as_uri())
    assert refused.value.hint == "the path without file://"
    assert ps.open((tmp_path / "a.tfrecord").as_uri().removeprefix("file://"))[0] == {"a": 1}
