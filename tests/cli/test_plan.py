"""`penstock plan`: what it prints, its JSON, and misuse."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run

import penstock as ps


def test_plan_prints_which_rank_reads_what(shards: Path) -> None:
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


def test_plan_shows_the_steps_of_each_bucket(tmp_path: Path) -> None:
    path = tmp_path / "tokens.tfrecord"
    ps.write({"tokens": [[1] * (n % 10) for n in range(100)]}, path)
    words = ("plan", path, "--batch-size", 4, "--buckets", "tokens=3,6,9", "--audit")
    ran = run(*words)
    assert ran.status == 0
    assert "bucket of tokens" in ran.out
    found = run(*words, "--json").document
    assert [bucket["num_records"] for bucket in found["buckets"]] == [40, 30, 30]
    assert [bucket["num_steps"] for bucket in found["buckets"]] == [10, 8, 8]
    assert found["coverage"]["num_once"] == 100 and found["ok"]
    short = ("plan", path, "--batch-size", 4, "--buckets", "tokens=3,6")
    assert run(*short, "--truncate").status == 0
    assert "longer than the largest bucket" in run(*short).err
    for wrong in (
        ["--buckets", "tokens=3:x"],
        ["--buckets", "tokens"],
        ["--buckets", "tokens=3,x"],
        ["--position", 8],
    ):
        assert run(*words, *wrong).status == 2


def test_plan_takes_the_batch_size_of_each_bucket(tmp_path: Path) -> None:
    path = tmp_path / "tokens.tfrecord"
    ps.write({"tokens": [[1] * (n % 10) for n in range(100)]}, path)
    words = ("plan", path, "--buckets", "tokens=3:9,6:5,9:2", "--world-size", 2, "--audit")
    assert "2 ranks of 2 to 9 records" in run(*words).out
    found = run(*words, "--json").document
    assert [bucket["batch_size"] for bucket in found["buckets"]] == [9, 5, 2]
    assert [bucket["num_steps"] for bucket in found["buckets"]] == [3, 3, 8]
    assert found["ok"]
    for sizes in ("3:9,6,9:2", "3:9,3:2,9:1", "3,6,9", "3:9,6:0,9:1"):
        ran = run("plan", path, "--buckets", f"tokens={sizes}")
        assert ran.status == 2 and "Error" in ran.err
    ran = run(*words, "--batch-size", 8)
    assert ran.status == 2 and "leave out batch_size" in ran.err


@pytest.mark.parametrize("wrong", [["--batch-size", 0], ["--batch-size", 8, "--position", 301], []])
def test_invalid_arguments_are_misuse(shards: Path, wrong: list[object]) -> None:
    assert run("plan", shards, *wrong).status == 2


def classes(folder: Path) -> Path:
    path = folder / "classes.tfrecord"
    ps.write({"label": [int(n > 80) for n in range(100)], "lists": [[1, 2]] * 100}, path)
    return path


@pytest.mark.parametrize("order", ["weighted", "balanced"])
def test_the_plan_of_an_order_by_a_column_equals_that_of_a_loader(
    order: str, tmp_path: Path
) -> None:
    path = classes(tmp_path)
    ran = run(
        *("plan", path, "--batch-size", 10, "--world-size", 2, "--order", order, "--by", "label"),
        *("--epoch-records", 60, "--audit", "--json"),
    )
    labels = [int(n > 80) for n in range(100)]
    made = (ps.Weighted if order == "weighted" else ps.Balanced)(labels, 0, 60)
    report = ps.plan(ps.Loader(ps.open(path), 10, order=made, world_size=2), audit=True)
    found = ran.document
    assert ran.status == 0
    assert report.coverage is not None
    assert found["coverage"]["num_repeated"] == report.coverage.num_repeated > 0
    assert found["order"] == made.spec()
    assert [rank["first_batch"] for rank in found["ranks"]] == [r.first_batch for r in report.ranks]


def test_a_mixture_is_planned_over_its_sources(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ps.write({"id": range(50)}, tmp_path / f"{name}.tfrecord")
    sources = [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"]
    words = ["--batch-size", 10, "--order", "mixture", "--share", 0.9]
    ran = run("plan", *sources, *words, "--share", 0.1, "--seed", 3, "--audit", "--json")
    order = ps.Mixture({"a": 0.9, "b": 0.1}, 3)
    assert ran.status == 0
    assert ran.document["ranks"][0]["first_batch"] == order.take([50, 50], 0, 0, 3).tolist()
    assert ran.document["length"] == 100
    assert run("plan", *sources, *words).status == 2, "each source needs a share"
    ps.write({"tokens": [[1, 2]] * 50, "other": range(50)}, tmp_path / "c.parquet")
    ps.write({"tokens": [[1, 2]] * 50}, tmp_path / "d.parquet")
    for other in ("c.parquet", "d.parquet"):
        mixed = run(
            "plan", tmp_path / "c.parquet", tmp_path / other, *words, "--share", 0.1, "--audit",
            *("--buckets", "tokens=1,4"), "--json",
        )  # fmt: skip
        assert mixed.status == 0 and mixed.document["buckets"][1]["num_records"] == 100
    assert run("plan", sources[0], tmp_path / "d.parquet", *words, "--share", 0.1).status == 0


@pytest.mark.parametrize(
    "wrong",
    [
        *(["--order", "weighted"], ["--order", "balanced", "--by", "nothing"]),
        *(["--order", "balanced", "--by", "lists"], ["--by", "label"], ["--share", 1]),
        *(["--epoch-records", 5], ["--order", "mixture"], ["--order", "mixture", "--share", -1]),
    ],
)
def test_options_of_other_orders_are_misuse(wrong: list[object], tmp_path: Path) -> None:
    assert run("plan", classes(tmp_path), "--batch-size", 8, *wrong).status == 2
