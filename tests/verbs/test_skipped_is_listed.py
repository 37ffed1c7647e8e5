"""Datasets made from a damaged dataset, and unreadable files of a set: what was skipped is listed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps


def ids_of(source: Any) -> list[int]:
    return [
        record["id"] for record in (source if isinstance(source, ps.Dataset) else ps.open(source))
    ]


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


MADE: dict[str, Any] = {
    "itself": lambda ds: ds,
    "types": lambda ds: ds.with_types({"caption": "string"}),
    "columns": lambda ds: ds.select(["caption"]),
    "columns of types": lambda ds: ds.with_types({"caption": "string"}).select(["id"]),
    "condition": lambda ds: ds.filter("id >= 0"),
    "numbers": lambda ds: ds.subset(range(len(ds) - 1)),
    "types of a view": lambda ds: ds.subset(range(len(ds) - 1)).with_types({"caption": "string"}),
    "complete": lambda ds: ds.complete(),
    "complete view": lambda ds: ds.filter("id >= 0").complete(),
    "opened again": lambda ds: ds.reopened(columns=["id"]),
    "without the names of folders": lambda ds: ds.whole("this test"),
    "without overlays": lambda ds: ds.reopened(overlays=False),
}
READS: dict[str, Any] = {
    "scan": lambda ds, _: list(ds.scan()),
    "table": lambda ds, _: ds.to_table(),
    "where": lambda ds, _: ds.to_table(where=lambda batch: np.ones(batch.num_rows, bool)),
    "count": lambda ds, _: ds.count(where=lambda batch: np.ones(batch.num_rows, bool)),
    "stats": lambda ds, _: ps.stats(ds),
    "stats of some": lambda ds, _: ps.stats(ds, where=lambda batch: np.ones(batch.num_rows, bool)),
    "polars": lambda ds, _: ds.lazy().collect(),
    "arrow": lambda ds, _: ds.to_arrow_dataset().to_table(),
    "write": ps.write,
}


def captions(path: Path) -> None:
    """10 records in each of two folders of a hive; the fourth of each is damaged."""
    table = {"id": list(range(10)), "caption": [b"a picture of %d" % n for n in range(10)]}
    for year in ("year=1", "year=2"):
        (path / year).mkdir(parents=True)
        file = path / year / "a.tfrecord"
        ps.write(table, str(file), index=False)
        flip(file, 3 * (file.stat().st_size // 10) + 30)
    ps.write(table, str(path / "whole.tfrecord"), index=False)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("read", READS)
def test_a_dataset_lists_what_was_skipped_in_datasets_made_from_it(
    tmp_path: Path, made: str, read: str
) -> None:
    captions(tmp_path)
    files = str(tmp_path / "year=*" / "*.tfrecord")

    def opened() -> ps.Dataset:
        return ps.open(files, damage="skip", index="never", hive=True)

    plain, ds = opened(), opened()
    list(plain.scan())
    assert len(plain.damage) == 2
    READS[read](MADE[made](ds), str(tmp_path / "out.parquet"))
    # An index describes the same fault with fewer words.
    assert [(one.file, one.start_byte, one.end_byte) for one in ds.damage] == [
        (one.file, one.start_byte, one.end_byte) for one in plain.damage
    ]


def test_a_view_lists_only_what_was_skipped_in_it(tmp_path: Path) -> None:
    captions(tmp_path)
    ds = ps.open(str(tmp_path / "year=1" / "*"), damage="skip", index="never")
    before = ds.select(["id"])
    list(ds.scan())
    assert len(ds.damage) == 1
    assert before.damage == ds.select(["id"]).damage == []


@pytest.mark.parametrize(
    "words",
    [{}, {"text": "auto"}, {"text": ["caption"]}, {"types": {"caption": "string"}},
     {"columns": ["id"]}, {"text": ["caption"], "columns": ["caption"]}],
)  # fmt: skip
def test_convert_tells_what_was_skipped_whatever_else_it_does(
    tmp_path: Path, words: dict[str, Any]
) -> None:
    captions(tmp_path)
    ds = ps.open(str(tmp_path / "year=1" / "*"), damage="skip", index="never")
    made = ps.convert(ds, str(tmp_path / "out.parquet"), **words)
    assert made.num_records == 9
    assert len(ds.damage) == 1


@pytest.mark.parametrize(
    "words",
    [["convert"], ["convert", "--text", "caption"], ["convert", "--text", "auto"],
     ["convert", "--cast", "caption=string"], ["convert", "--columns", "id"]],
)  # fmt: skip
def test_the_command_prints_what_was_skipped_whatever_else_it_does(
    tmp_path: Path, words: list[str]
) -> None:
    captions(tmp_path)
    command, *options = words
    call = [sys.executable, "-m", "penstock", command, str(tmp_path / "year=1" / "a.tfrecord")]
    call += [str(tmp_path / "out.parquet"), "--damage", "skip", "--overwrite", *options]
    found = subprocess.run(call, check=True, capture_output=True, text=True)
    assert found.stderr.count("skipped in ") == 1
    found = subprocess.run([*call, "--json"], check=True, capture_output=True, text=True)
    assert len(json.loads(found.stdout)["damage"]) == 1


@pytest.mark.parametrize(
    "words",
    [["split", "--shares", "a=0.5,b=0.5", "--into", "{}/out-{{split}}.tfrecord"],
     ["sort", "--by", "id", "--into", "{}/out.tfrecord"], ["dedupe", "--into", "{}/out.tfrecord"]],
)  # fmt: skip
def test_commands_that_choose_records_print_what_was_skipped(
    tmp_path: Path, words: list[str]
) -> None:
    captions(tmp_path)
    command, *options = words
    call = [sys.executable, "-m", "penstock", command, str(tmp_path / "year=1" / "a.tfrecord")]
    call += [one.format(tmp_path) for one in options] + ["--damage", "skip", "--overwrite"]
    found = subprocess.run(call, check=True, capture_output=True, text=True)
    assert found.stderr.count("skipped in ") == 1
    found = subprocess.run([*call, "--json"], check=True, capture_output=True, text=True)
    assert len(json.loads(found.stdout)["damage"]) == 1
    assert ps.open(str(tmp_path / "out*.tfrecord")).count() == 9


# -- files that cannot be opened --------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["parquet", "arrow", "h5", "npz", "beton"])
@pytest.mark.parametrize("bad", ["a", "b"])
@pytest.mark.parametrize("cut", [2, 3])
@pytest.mark.parametrize("damage", ["skip", "stop"])
def test_the_other_files_of_an_unreadable_one_are_read(
    tmp_path: Path, ending: str, bad: str, cut: int, damage: Any
) -> None:
    paths = [str(tmp_path / f"{name}.{ending}") for name in "ab"]
    for path in paths:
        ps.write({"id": list(range(20)), "other": [0.5] * 20}, path)
    broken = tmp_path / f"{bad}.{ending}"
    data = broken.read_bytes()
    broken.write_bytes(data[: len(data) // cut])
    with pytest.raises(ps.FormatError, match=broken.name):
        ids_of(paths)
    ds = ps.open(paths, damage=damage)
    assert ids_of(ds) == list(range(20))
    [region] = ds.damage
    assert (region.file, region.start_byte, region.num_records) == (str(broken), 0, None)
    assert region.end_byte == broken.stat().st_size
    assert region.reason
    assert ds.skipped_files == ()
    assert len(ds) == 20
    again = ps.open(paths, damage=damage)
    loader = ps.Loader(again, 7)
    assert sum(len(batch["id"]) for batch in loader) == 20
    assert loader.damage == [region]
    broken.with_name(f"{'b' if bad == 'a' else 'a'}.{ending}").write_bytes(broken.read_bytes())
    with pytest.raises(ps.FormatError):  # nothing is left to read
        ps.open(paths, damage=damage)


def test_the_summary_of_a_conversion_counts_what_damage_left_out(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(100)]
    ps.write({"text": texts}, tmp_path / "x.tfrecord", index=False)
    data = (tmp_path / "x.tfrecord").read_bytes()
    (tmp_path / "x.tfrecord").write_bytes(data.replace(b"text 50", b"tent 50"))
    ds = ps.open(tmp_path / "x.tfrecord", damage="skip", index="never")
    made = ps.convert(ds, tmp_path / "y.parquet")
    assert made.num_records == 99
    note = "1 damaged place was left out, with 1 record; Dataset.damage lists them"
    assert note in made.notes
