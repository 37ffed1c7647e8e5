"""Laws of `split`: parts are disjoint, have the right sizes, and are the same each time they are made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.verbs.choose.split import sizes_of

SHARES = {"train": 0.8, "val": 0.1, "test": 0.1}
COUNT = 1000
TABLE = pa.table(
    {
        "number": np.arange(COUNT),
        "user": [f"user {n * 7 % 90}" for n in range(COUNT)],
        "label": [None if n % 10 == 0 else n % 7 for n in range(COUNT)],
    }
)


def made(folder: Path, table: pa.Table = TABLE, ending: str = "tfrecord", shards: int = 3) -> str:
    ps.write(table, folder / f"a.{ending}", num_shards=shards, overwrite=True)
    return str(folder / f"a@{shards}.{ending}")


def numbers(part: ps.Dataset) -> list[int]:
    return part.to_table(["number"])["number"].to_pylist()


def test_a_split_is_disjoint_exhaustive_exact_and_in_the_order_of_the_files(tmp_path: Path) -> None:
    parts = ps.split(made(tmp_path), SHARES)
    assert [len(parts[name]) for name in SHARES] == [800, 100, 100]
    found = [numbers(part) for part in parts.values()]
    assert sorted(n for one in found for n in one) == list(range(COUNT))
    for one in found:
        assert one == sorted(one)
        assert one != list(range(one[0], one[0] + len(one)))


@settings(deadline=None, max_examples=200)
@given(
    st.integers(0, 1 << 40),
    st.lists(st.integers(1, 1000), min_size=1, max_size=6),
    st.booleans(),
)
def test_sizes_differ_from_the_shares_by_less_than_one_record(
    total: int, weights: list[int], is_whole: bool
) -> None:
    whole = sum(weights) + (0 if is_whole else 17)
    shares = [Fraction(repr(weight / whole)) for weight in weights]
    sizes = sizes_of(total, shares)
    for size, share in zip(sizes, shares, strict=True):
        assert abs(size - total * share) < 1 + total * 1e-9
    if is_whole:
        assert sum(sizes) == total


def test_the_same_call_gives_the_same_parts_in_every_format_and_number_of_files(
    tmp_path: Path,
) -> None:
    hows: list[dict[str, Any]] = [
        {},
        {"by": "number"},
        {"by": ["user", "number"]},
        {"stratify": "label"},
    ]
    for how in hows:
        found = [
            {name: numbers(part) for name, part in ps.split(source, SHARES, **how).items()}
            for source in (
                made(tmp_path),
                made(tmp_path, shards=1),
                made(tmp_path, ending="parquet"),
                made(
                    tmp_path, TABLE.set_column(0, "number", TABLE["number"].cast("int16")), "arrow"
                ),
            )
        ]
        assert found[0] == found[1] == found[2] == found[3], how
        other = ps.split(made(tmp_path), SHARES, seed=1, **how)
        assert {name: numbers(part) for name, part in other.items()} != found[0]


def test_the_parts_never_change_between_versions(tmp_path: Path) -> None:
    source = made(tmp_path)
    assert numbers(ps.split(source, SHARES)["val"])[:5] == [6, 8, 18, 29, 30]
    assert numbers(ps.split(source, SHARES, by="user")["val"])[:5] == [13, 14, 18, 29, 31]
    assert numbers(ps.split(source, SHARES, stratify="label")["val"])[:5] == [6, 21, 29, 30, 43]


@pytest.mark.parametrize("by", ["user", ["user"], ["label", "user"]])
def test_equal_values_stay_together_and_added_records_move_nothing(
    by: str | list[str], tmp_path: Path
) -> None:
    source = made(tmp_path)
    before = ps.split(source, SHARES, by=by)
    names = [by] if isinstance(by, str) else by
    seen: dict[Any, str] = {}
    for name, part in before.items():
        for row in part.to_table().to_pylist():
            assert seen.setdefault(tuple(row[one] for one in names), name) == name
    assert sum(map(len, before.values())) == COUNT
    more = TABLE.set_column(0, "number", pa.array(np.arange(COUNT, 2 * COUNT)))
    ps.write(pa.concat_tables([more, TABLE]), tmp_path / "b.tfrecord")
    after = ps.split(tmp_path / "b.tfrecord", SHARES, by=by)
    for name, part in before.items():
        assert set(numbers(part)) <= set(numbers(after[name]))


def test_by_a_key_of_its_own_the_sizes_are_about_the_expected_ones(tmp_path: Path) -> None:
    ps.write({"id": np.arange(20_000)}, tmp_path / "a.arrow")
    parts = ps.split(tmp_path / "a.arrow", SHARES, by="id")
    for name, share in SHARES.items():
        assert abs(len(parts[name]) / 20_000 - share) < 0.01


@pytest.mark.parametrize("shares", [SHARES, {str(n): 0.2 for n in range(5)}, {"a": 0.25, "b": 0.1}])
def test_stratified_sums_are_right_although_groups_are_small(
    shares: dict[str, float], tmp_path: Path
) -> None:
    """Of 6 records, 0.6 belong in each of two small splits: some groups give one to the one split, some to the other."""
    labels = np.repeat(np.arange(100), 6)
    path = tmp_path / "x.parquet"
    ps.write({"number": range(600), "label": labels}, path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = ps.split(path, shares, stratify="label")
    for name, share in shares.items():
        found = labels[numbers(parts[name])]
        assert abs(len(found) - 600 * share) <= 1
        each = np.bincount(found, minlength=100)
        assert each.min() >= int(6 * share)
        assert each.max() <= int(6 * share) + 1


def test_stratified_sizes_are_exact_for_each_value(tmp_path: Path) -> None:
    parts = ps.split(made(tmp_path), {"a": 0.5, "b": 0.3, "c": 0.2}, stratify="label")
    counts = {name: Counter(part.to_table()["label"].to_pylist()) for name, part in parts.items()}
    whole = Counter(TABLE["label"].to_pylist())
    for value, count in whole.items():
        found = [counts[name][value] for name in "abc"]
        assert sum(found) == count
        for size, share in zip(found, (0.5, 0.3, 0.2), strict=True):
            assert abs(size - count * share) < 1


def test_records_that_no_share_is_for_are_left_out_with_a_warning(tmp_path: Path) -> None:
    source = made(tmp_path)
    with pytest.warns(UserWarning, match="700 of 1000 records are in no split"):
        parts = ps.split(source, {"few": 0.1, "more": 0.2})
    assert [len(part) for part in parts.values()] == [100, 200]
    with pytest.warns(UserWarning, match="records are in no split"):
        parts = ps.split(source, {"few": 0.25}, by="number")
    assert 200 < len(parts["few"]) < 300
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ps.split(source, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}, by="number")


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"a": 0.8, "b": 0.3}, "add up to 1.1, which is more than 1"),
        ({"a": -0.1}, "the share of a must be above 0"),
        ({"a": 0}, "the share of a must be above 0"),
        ({"a": float("nan")}, "the share of a must be above 0"),
        ({}, "names no split"),
        ({"": 0.5}, "the name of a split must be"),
    ],
)
def test_invalid_shares_are_refused(shares: dict[str, float], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        ps.split(made(tmp_path), shares)


def test_other_mistakes_say_what_to_do(tmp_path: Path) -> None:
    source = made(tmp_path)
    with pytest.raises(TypeError, match=r"shares= is a dict, such as .*, not list"):
        ps.split(source, [0.9, 0.1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="use one"):
        ps.split(source, SHARES, by="user", stratify="label")
    with pytest.raises(ps.SchemaError, match="there are: "):
        ps.split(source, SHARES, by="nothing")
    with pytest.raises(ps.SchemaError, match="there are: "):
        ps.split(source, SHARES, stratify="nothing")
    with pytest.raises(ps.UnsupportedError, match='damage="stop"'):
        ps.split(ps.open(source, damage="stop"), SHARES)
    with pytest.raises(ValueError, match="would be the file of every split"):
        ps.write_splits(source, tmp_path / "x.tfrecord", SHARES)
    with pytest.raises(ValueError, match="part of a file's name"):
        ps.write_splits(source, tmp_path / "{split}.tfrecord", {"../x": 1})


def test_no_records_and_few_records_are_divided_too(tmp_path: Path) -> None:
    ps.write(TABLE.slice(0, 0), tmp_path / "none.parquet")
    for how in ({}, {"by": "number"}, {"stratify": "label"}):
        assert [len(p) for p in ps.split(tmp_path / "none.parquet", SHARES, **how).values()] == [
            0
        ] * 3
    ps.write(TABLE.slice(0, 2), tmp_path / "two.parquet")
    assert [len(p) for p in ps.split(tmp_path / "two.parquet", SHARES).values()] == [2, 0, 0]


def test_a_view_is_divided_as_a_dataset_is(tmp_path: Path) -> None:
    kept = ps.open(made(tmp_path)).filter("label == 3")
    parts = ps.split(kept, {"a": 0.5, "b": 0.5})
    found = sorted(numbers(parts["a"]) + numbers(parts["b"]))
    assert found == numbers(kept)
    again = ps.split(parts["a"], {"c": 0.5, "d": 0.5})
    assert sorted(numbers(again["c"]) + numbers(again["d"])) == numbers(parts["a"])


@pytest.mark.parametrize("into", ["{split}-{shard}.tfrecord", "{split}/{shard}.parquet"])
def test_written_splits_hold_the_records_of_the_views_and_open_by_name(
    into: str, tmp_path: Path
) -> None:
    source = made(tmp_path)
    summaries = ps.write_splits(source, tmp_path / "out" / into, SHARES, num_shards=2, prove=True)
    for name, part in ps.split(source, SHARES).items():
        written = ps.open(tmp_path / "out", split=name)
        assert list(summaries[name].paths) == sorted(written.paths)
        assert summaries[name].num_records == len(part)
        assert summaries[name].num_bytes == sum(os.path.getsize(p) for p in written.paths)
        assert numbers(written) == numbers(part)
    left = [file for _, _, files in os.walk(tmp_path / "out") for file in files]
    assert not [file for file in left if "part" in file or "lock" in file]


CHILD = """
import os, signal, sys
import penstock as ps
calls = 0
def tell(records, done, total):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
ps.write_splits(sys.argv[1], sys.argv[2], {"train": 0.5, "val": 0.5}, num_shards=2, progress=tell, threads=1)
"""


def test_a_killed_split_continues_and_ends_with_the_same_files(tmp_path: Path) -> None:
    source, shares = made(tmp_path), {"train": 0.5, "val": 0.5}
    into = tmp_path / "cut" / "{split}" / "{shard}.tfrecord"
    for calls in (2, 2):
        command = [sys.executable, "-c", CHILD, source, str(into), str(calls)]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert not list((tmp_path / "cut").rglob("0*.tfrecord"))
    ps.write_splits(source, into, shares, num_shards=2)
    ps.write_splits(
        source, tmp_path / "whole" / "{split}" / "{shard}.tfrecord", shares, num_shards=2
    )
    cut, whole = (
        {str(p.relative_to(top)): p.read_bytes() for p in top.rglob("*") if p.is_file()}
        for top in (tmp_path / "cut", tmp_path / "whole")
    )
    assert cut == whole
    assert len(cut) == 8
