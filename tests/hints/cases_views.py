"""Hints about views, and about batches of records of similar length."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from steps import Case, Cases, cli

import penstock as ps

WANTED = [3, 4, 5]


def written(name: str = "a.tfrecord") -> ps.Dataset:
    tokens = [[1] * (number + 1) for number in range(6)]
    ps.write({"id": np.arange(6), "tokens": tokens}, name, index=False)
    return ps.open(name)


def damaged() -> None:
    written()
    data = bytearray(Path("a.tfrecord").read_bytes())
    data[20] ^= 1
    Path("a.tfrecord").write_bytes(bytes(data))


def ids(data: Any) -> list[int]:
    return [record["id"] for record in data]


def numbers_of_a_filtered_view() -> Case:
    damaged()
    view = ps.open("a.tfrecord", damage="stop").filter("id >= 3")

    def advised() -> None:
        view = ps.open("a.tfrecord", damage="skip").filter("id >= 3")
        assert len(view) == len(WANTED)
        assert view.take([0, 1, 2])["id"].to_pylist() == WANTED

    return Case(lambda: len(view), advised)


def records_without_numbers() -> Case:
    """Equal records of a compressed file, in which damage shifts the later ones."""
    ps.write({"id": [number // 2 % 40 for number in range(400)]}, "a.tfrecord", index=False)
    whole = gzip.compress(Path("a.tfrecord").read_bytes(), 6, mtime=0)
    path = Path("a.tfrecord.gz")
    path.write_bytes(whole)
    ps.index(path)
    times = path.stat()

    def split(name: str) -> dict[str, ps.Dataset]:
        return ps.split(ps.open(name, damage="skip"), {"a": 0.5, "b": 0.5})

    for bit in range(8 * 200, 8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # damaged, not rewritten
        try:
            split("a.tfrecord.gz")
        except ps.UnsupportedError:
            break

    def advised() -> None:
        cli("repair a.tfrecord.gz --into NEW")
        assert split("NEW")["a"].to_table().num_rows

    text = "penstock repair a.tfrecord.gz --into NEW"
    return Case(lambda: split("a.tfrecord.gz"), advised, text)


def fields_of_a_view() -> Case:
    view = written().filter("id >= 3")

    def advised() -> None:
        ps.convert(view, "b.tfrecord")
        ps.add_fields("b.tfrecord", {"x": [1, 2, 3]})
        assert [record["x"] for record in ps.open("b.tfrecord")] == [1, 2, 3]

    return Case(lambda: ps.add_fields(view, {"x": [1, 2, 3]}), advised)


def seen(loader: ps.Loader) -> list[int]:
    return sorted(number for batch in loader for number in batch["id"].tolist())


def bucketed(data: Any, **options: Any) -> ps.Loader:
    return ps.Loader(data, 2, **{"buckets": {"tokens": [3, 6]}, **options})


def an_order_that_selects() -> Case:
    data = written()

    def advised() -> None:
        for order in (ps.Shuffled(0), ps.Blocked(0), ps.Sequential()):
            assert seen(bucketed(data, order=order)) == list(range(6))

    return Case(lambda: bucketed(data, order=ps.Weighted(np.ones(6), seed=0)), advised)


def longer_than_all_buckets() -> Case:
    data, few = written(), {"tokens": [3]}

    def advised() -> None:
        assert seen(bucketed(data, buckets={"tokens": [3, 6]})) == list(range(6))
        assert seen(bucketed(data, buckets=few, truncate=True)) == list(range(6))

    return Case(lambda: bucketed(data, buckets=few), advised, "a bucket of 6, or truncate=True")


def lengths_of_damaged_records() -> Case:
    damaged()

    def advised() -> None:
        cli("repair a.tfrecord --into b.tfrecord")
        assert seen(bucketed(ps.open("b.tfrecord"))) == list(range(1, 6))

    return Case(lambda: bucketed(ps.open("a.tfrecord", damage="skip")), advised)


CASES: Cases = {
    "'open(..., damage=\"skip\"), which reads on after the damage'": numbers_of_a_filtered_view,
    "command('penstock', 'repair', dataset.paths[shard], '--into', 'NEW')": records_without_numbers,
    "'penstock.convert writes the view as files of its own'": fields_of_a_view,
    "'ps.Shuffled, ps.Blocked or ps.Sequential'": an_order_that_selects,
    "f'a bucket of {int(lengths.max())}, or truncate=True'": longer_than_all_buckets,
    "'penstock repair, and then open the repaired files'": lengths_of_damaged_records,
}
