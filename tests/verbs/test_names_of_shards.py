"""Names of shards that do not sort in the order of the records are noted, by each verb that takes a pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

NOTE = "these names do not sort in the order of the records; {shard:05d} does"


def _write(source: str, into: str, **cut: Any) -> ps.Summary:
    return ps.write(ps.open(source), into, **cut)


def _split(source: str, into: str, **cut: Any) -> ps.Summary:
    return ps.write_splits(source, f"{into}{{split}}", {"a": 0.5, "b": 0.5}, **cut)["b"]


def _replace(source: str, into: str, **cut: Any) -> ps.Summary:
    ps.convert(source, "parts.tfrecord", **cut)
    return ps.replace_fields("parts-*", {"id": 0}, into=into)


def _sort(source: str, into: str, **cut: Any) -> ps.Summary:
    return ps.sort(source, "id", into=into, **cut)


def _dedupe(source: str, into: str, **cut: Any) -> ps.Summary:
    return ps.dedupe(source, "id", into=into, **cut)


VERBS = [_write, ps.convert, _sort, _dedupe, _replace]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": list(range(30))}, "data.tfrecord")
    return "data.tfrecord"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("pattern", "num_shards", "is_noted"),
    [
        ("s-{shard}.tfrecord", 11, True),
        ("s-{shard}.tfrecord", 10, False),
        ("s-{shard:05d}.tfrecord", 11, False),
        ("s-{shard:02d}.tfrecord", 11, False),
        ("s.tfrecord", 11, False),
    ],
)
def test_numbers_without_zeros_are_noted_from_eleven_shards_on(
    source: str, verb: Any, pattern: str, num_shards: int, is_noted: bool
) -> None:
    if verb is _replace and "{" not in pattern:
        pattern = "folder/"
    made = verb(source, pattern, num_shards=num_shards)
    assert (NOTE in made.notes) is is_noted
    if verb is not _replace:  # there all records are equal
        assert (ids("s-*") == ids(list(made.paths))) is not is_noted


def ids(source: str | list[str]) -> list[int]:
    return ps.open(source).to_table()["id"].to_pylist()


def test_shards_that_end_by_their_bytes_are_noted_too(source: str) -> None:
    for verb in (_write, ps.convert):
        made = verb(source, f"{verb.__name__}-{{shard}}.tfrecord", shard_bytes=1)
        assert len(made.paths) > 10
        assert NOTE in made.notes


def test_each_split_is_looked_at_by_itself(source: str) -> None:
    assert NOTE not in _split(source, "a-{shard}-", num_shards=11, format="tfrecord").notes
    assert NOTE not in _split(source, "b-{shard:d}-", num_shards=10, format="tfrecord").notes
    assert NOTE in _split(source, "c-{shard:d}-", num_shards=11, format="tfrecord").notes


@pytest.mark.parametrize(
    "target", ["lang={word}/{shard}.parquet", "{word}.parquet", "{shard}/a.parquet"]
)
def test_words_in_braces_that_nothing_replaces_are_refused(tmp_path: Path, target: str) -> None:
    ps.write({"lang": ["en", "de"]}, tmp_path / "x.tfrecord")
    for make in (ps.convert, lambda data, path: ps.write(ps.open(data), path)):
        with pytest.raises(ValueError, match="nothing replaces"):
            make(tmp_path / "x.tfrecord", tmp_path / "new" / target)
    assert not (tmp_path / "new").exists()


def test_a_folder_may_have_braces_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "{lang}").mkdir()
    made = ps.write({"a": [1, 2]}, tmp_path / "{lang}" / "{shard}.tfrecord", num_shards=2)
    assert len(ps.open(list(made.paths))) == 2
