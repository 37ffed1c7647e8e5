"""Results print as the tables of the command line, and their `repr` is one short line."""

from __future__ import annotations

import copy
import html
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program

COUNT = 40


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    columns = {"id": np.arange(COUNT), "tokens": [[1] * (n % 7) for n in range(COUNT)]}
    ps.write(columns, "a.tfrecord", num_shards=2)
    ps.write({**columns, "id": np.arange(COUNT) // 2}, "b.parquet")
    path = Path("damaged.tfrecord")
    path.write_bytes(Path("a-00000-of-00002.tfrecord").read_bytes())
    whole = bytearray(path.read_bytes())
    whole[-10] ^= 255
    path.write_bytes(whole)


def loader(**more: Any) -> ps.Loader:
    return ps.Loader(ps.open("a-*.tfrecord"), 8, order=ps.Shuffled(0), world_size=3, **more)


BUCKETS = {"tokens": [2, 4, 6]}
SAME: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "info": (lambda: ps.info("a-*.tfrecord"), ["info", "a-*.tfrecord"]),
    "stats": (lambda: ps.stats("a-*.tfrecord"), ["stats", "a-*.tfrecord"]),
    "schemas": (lambda: ps.schemas("a-*.tfrecord"), ["schema", "a-*.tfrecord"]),
    "verify": (lambda: ps.verify("a-*.tfrecord"), ["verify", "a-*.tfrecord"]),
    "layout": (
        lambda: ps.layout("a-00000-of-00002.tfrecord"),
        ["layout", "a-00000-of-00002.tfrecord"],
    ),
    "diff": (
        lambda: ps.diff("a-*.tfrecord", "b.parquet"),
        ["diff", "a-*.tfrecord", "b.parquet"],
    ),
    "repair": (
        lambda: ps.repair("damaged.tfrecord", into="whole.tfrecord", overwrite=True),
        ["repair", "damaged.tfrecord", "--into", "whole.tfrecord", "--overwrite"],
    ),
    "convert": (
        lambda: ps.convert("a-*.tfrecord", "c.parquet", overwrite=True),
        ["convert", "a-*.tfrecord", "c.parquet", "--overwrite"],
    ),
    "plan": (
        lambda: ps.plan(loader(), audit=True),
        ["plan", "a-*.tfrecord", "--batch-size", "8", "--world-size", "3", "--audit"],
    ),
    "plan of buckets": (
        lambda: ps.plan(loader(buckets=BUCKETS), audit=True),
        [
            *("plan", "a-*.tfrecord", "--batch-size", "8", "--world-size", "3", "--audit"),
            *("--buckets", "tokens=2,4,6"),
        ],
    ),
}


def read() -> ps.LoaderStats:
    one = loader()
    list(one)
    return one.stats()


RESULTS: dict[str, Callable[[], Any]] = {
    **{name: make for name, (make, _) in SAME.items()},
    "one field": lambda: ps.stats("a-*.tfrecord")["tokens"],
    "coverage": lambda: ps.plan(loader(), audit=True).coverage,
    "stats of a loader": read,
    "stats of a new loader": lambda: loader().stats(),
    "append": lambda: ps.append({"id": [7], "tokens": [[1]]}, "a-00001-of-00002.tfrecord"),
    "damage": lambda: ps.verify("damaged.tfrecord"),
}


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", SAME)
def test_print_shows_what_the_command_line_shows(name: str) -> None:
    make, words = SAME[name]
    shown = str(make())
    ran = CliRunner().invoke(program, words)
    assert not ran.exception or isinstance(ran.exception, SystemExit)
    assert shown in ran.stdout
    assert len(shown.splitlines()) >= {"verify": 1, "convert": 1}.get(name, 3)


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_prints_as_text_and_its_repr_is_one_line(name: str) -> None:
    found = RESULTS[name]()
    shown = str(found)
    assert shown and type(found).__name__ not in shown, "not the repr of a dataclass"
    assert "\x1b" not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())
    if name != "layout":
        assert repr(found).startswith(f"<penstock.{type(found).__name__}: ")
        assert "\n" not in repr(found) and len(repr(found)) < 130
        assert found._repr_html_() == f"<pre>{html.escape(shown)}</pre>"  # what notebooks show
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found


@pytest.mark.usefixtures("data")
def test_damage_is_printed_with_its_file_record_and_bytes() -> None:
    report = ps.verify("damaged.tfrecord")
    (finding,) = report.findings
    head, _, place, what = str(report).splitlines()
    assert head.startswith("1 fault: 19 records intact, ")
    assert place == (
        f"damaged.tfrecord: record {finding.record}, bytes {finding.start_byte} to {finding.end_byte}"
    )
    assert what.strip().startswith(finding.kind)


@pytest.mark.usefixtures("data")
def test_long_reports_print_their_beginning() -> None:
    many = tuple(ps.Finding("format", f"{n}.tfrecord", None, 0, 9, "bad") for n in range(60))
    shown = str(ps.Report(3, many))
    assert "49.tfrecord" in shown and "50.tfrecord" not in shown
    assert "and 10 more: findings, or --json, lists all" in shown
    files = tuple(f"{n}.arrow" for n in range(500))
    assert str(ps.Summary(files, 7, 1000)) == "7 records, 1.00 kB: 500 files, 0.arrow …"


@pytest.mark.usefixtures("data")
def test_lines_are_as_wide_as_columns_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = ps.stats("a-*.tfrecord")
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, str(found).splitlines())) <= 40
    monkeypatch.setenv("COLUMNS", "nonsense")
    assert 40 < max(map(len, str(found).splitlines())) <= 100


def test_names_from_files_cannot_control_the_terminal(tmp_path: Path) -> None:
    ps.write({"a\x1b[31mb": [1]}, tmp_path / "names.tfrecord")
    for found in (ps.info(tmp_path), ps.stats(tmp_path), ps.schemas(tmp_path)):
        assert "\x1b" not in str(found) + repr(found)
        assert r"a\x1b[31mb" in str(found)
