"""A key of JSON that no record has, in a condition, is a warning."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program

SAID = r"no record has a value for the key 'similarity' in 'json'; the first record has the keys 'n', 'in'"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Records of which only the last has the key `rare`."""
    texts = [json.dumps({"n": n, "in": {"deep": n}}) for n in range(400)]
    texts.append('{"n": null, "rare": 1}')
    ps.write({"json": pa.array(texts, pa.json_())}, tmp_path / "a.parquet", num_shards=2)
    return tmp_path


@pytest.mark.parametrize(
    "verb",
    [
        lambda path, where: ps.open(path).count(where),
        lambda path, where: len(ps.open(path).filter(where)),
        lambda path, where: ps.open(path).to_table(where=where),
        lambda path, where: ps.stats(path, where=where),
        lambda path, where: ps.convert(
            path, path.parent / "out.arrow", where=where, overwrite=True
        ),
    ],
    ids=["count", "len", "to_table", "stats", "convert"],
)
def test_a_key_that_no_record_has_is_a_warning(
    path: Path, verb: Callable[[Path, str], None]
) -> None:
    with pytest.warns(UserWarning, match=SAID):
        verb(path, "json.similarity > 0.3")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verb(path, "json.rare == 1")


@pytest.mark.parametrize(
    "where",
    [
        "json.n > 1000",  # no such value, but the key
        "json.similarity is null",
        "coalesce(json.similarity, 1) > 0.3",
        "json.in.deep == 3",
    ],
)
def test_keys_that_are_there_or_may_be_missing_are_no_warning(path: Path, where: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.open(path).count(where)


def test_a_key_inside_an_object_is_named_with_its_path(path: Path) -> None:
    said = r"for the key 'in\.deeep' in 'json'; the first record has the keys 'deep'"
    with pytest.warns(UserWarning, match=said):
        assert ps.open(path).count("json.in.deeep == 3") == 0


def test_a_scan_that_stops_early_says_nothing(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ps.open(path).to_table(where="json.n >= 0 or json.similarity > 1", limit=1).num_rows


@pytest.mark.parametrize("verb", ["head", "stats", "convert"])
def test_the_command_line_prints_the_warning(path: Path, verb: str) -> None:
    more = [str(path.parent / "o.arrow"), "--overwrite"] if verb == "convert" else []
    words = [verb, str(path), *more, "--where", "json.similarity > 0.3"]
    with pytest.warns(UserWarning, match=SAID):
        assert CliRunner().invoke(program, words).exit_code == 0
