"""Names that no client reads are refused, and what works is named."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ps.write({"a": [1]}, "a.tfrecord")


@pytest.mark.parametrize("name", ["ftp://host/x.tar"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ps.UnsupportedError, match="names") as refused:
        ps.open(name)
    assert refused.value.hint is not None and "s3://" in refused.value.hint


def test_a_web_server_cannot_be_written_to() -> None:
    with pytest.raises(ps.UnsupportedError, match="web servers"):
        ps.write({"a": [1]}, "https://127.0.0.1/x.tfrecord")


def test_a_file_url_names_the_way(tmp_path: Path) -> None:
    with pytest.raises(ps.UnsupportedError) as refused:
        ps.open((tmp_path / "a.tfrecord").as_uri())
    assert refused.value.hint == "the path without file://"
    assert ps.open((tmp_path / "a.tfrecord").as_uri().removeprefix("file://"))[0] == {"a": 1}
