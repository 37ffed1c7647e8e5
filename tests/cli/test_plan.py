"""`penstock plan`."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run

import penstock as ps


def test_plan_prints_who_reads_what(shards: Path) -> None:
    ran = run("plan", shards, "--batch-size", 32, "--world-size", 4, "--audit")
    assert ran.status == 0
    assert "3 on every rank" in ran.out
    assert "every one of 300 records comes exactly once" in ran.out
    first = ps.Shuffled(0).take(300, 0, 0, 3).tolist()
    assert ", ".join(map(str, first)) in ran.out


def test_plan_has_json(shards: Path) -> None:
    ran = run(
        *("plan", shards, "--batch-size", 32, "--world-size", 4, "--drop-last", "--audit"),
        *("--position", 128, "--epoch", 3, "--order", "sequential", "--json"),
    )
    found = ran.document
    assert (found["epoch"], found["position"], found["num_steps"]) == (3, 128, 1)
    assert found["dropped"] == [256, 300]
    assert found["coverage"]["num_missing"] == 44
    assert found["ok"] is True
    assert [rank["first_batch"][0] for rank in found["ranks"]] == [128, 160, 192, 224]


def test_plan_names_repeated_records_line_by_line(shards: Path) -> None:
    ran = run("plan", shards, "--batch-size", 32, "--world-size", 7, "--audit")
    assert ran.status == 0
    assert "299 of 300 records come exactly once" in ran.out
    assert "\n  2 times: " in ran.out


@pytest.mark.parametrize("wrong", [["--batch-size", 0], ["--batch-size", 8, "--position", 301], []])
def test_wrong_words_are_misuse(shards: Path, wrong: list[object]) -> None:
    assert run("plan", shards, *wrong).status == 2
