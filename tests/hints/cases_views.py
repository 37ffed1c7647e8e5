"""Hints about views, and about batches of records of similar length."""

from __future__ import annotations

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
    view = ps.open("a.tfrecord", damage="skip").filter("id >= 3")

    def advised() -> None:
        assert ids(view) == WANTED
        ps.convert(view, "b.tfrecord")
        assert len(ps.open("b.tfrecord")) == 3

    return Case(lambda: len(view), advised)


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


def a_name_that_is_taken() -> Case:
    data = written()

    def advised() -> None:
        assert [record["length"] for record in data.rename({"id": "length"})] == list(range(6))

    return Case(lambda: data.rename({"id": "tokens"}), advised)


def a_name_that_was_left_out() -> Case:
    data = written()

    def advised() -> None:
        assert data.select(["id"]).rename({"id": "tokens"})[3] == {"tokens": 3}

    return Case(lambda: data.rename({"id": "tokens"}), advised)


def fields_of_a_renamed_view() -> Case:
    data, added = written(), {"x": np.arange(6)}

    def advised() -> None:
        ps.add_fields(data, added)
        found = ps.open("a.tfrecord").rename({"id": "number"})
        assert [(record["number"], record["x"]) for record in found] == [(n, n) for n in range(6)]

    return Case(lambda: ps.add_fields(data.rename({"id": "number"}), added), advised)


def sets(first: dict[str, Any], second: dict[str, Any]) -> list[ps.Dataset]:
    ps.write(first, "0.parquet")
    ps.write(second, "1.parquet")
    return [ps.open("0.parquet"), ps.open("1.parquet")]


def images(data: Any, **options: Any) -> list[int]:
    (batch,) = ps.Loader(data, 2, **options)
    assert list(batch) == ["image"]
    return batch["image"].tolist()


def sets_without_a_common_column() -> Case:
    one, other = sets({"image": [1]}, {"picture": [2]})

    def renamed() -> None:
        assert images([one, other.rename({"picture": "image"})]) == [1, 2]

    return Case(
        lambda: images([one, other]),
        renamed,
        'ds.rename({"old": "new"}), so that they have the same columns',
    )


def sets_of_which_one_has_more() -> Case:
    data = sets({"image": [1], "url": ["x"]}, {"image": [2]})

    def advised() -> None:
        assert images(data, columns=["image"]) == [1, 2]

    return Case(
        lambda: images(data),
        advised,
        "columns=['image'], which all of them have, or ds.rename for one with two names",
    )


def sets_with_two_names() -> Case:
    one, other = sets({"image": [1], "y": [3]}, {"image": [2], "label": [4]})

    def renamed() -> None:
        (batch,) = ps.Loader([one.rename({"y": "label"}), other], 2)
        assert batch["label"].tolist() == [3, 4]

    return Case(
        lambda: images([one, other]),
        renamed,
        "columns=['image'], which all of them have, or ds.rename for one with two names",
    )


CASES: Cases = {
    "'scan the view, or write it with penstock.convert and open that'": numbers_of_a_filtered_view,
    "'penstock.convert writes the view as files of its own'": fields_of_a_view,
    "'another name, or select without one of them'": (
        a_name_that_is_taken,
        a_name_that_was_left_out,
    ),
    "'the dataset as it was before rename'": fields_of_a_renamed_view,
    """f'columns={shared}, which all of them have, or ds.rename for one with two names' if shared else 'ds.rename({"old": "new"}), so that they have the same columns'""": (
        sets_without_a_common_column,
        sets_of_which_one_has_more,
        sets_with_two_names,
    ),
    "f'a bucket of {int(lengths.max())}, or truncate=True'": longer_than_all_buckets,
    "'penstock repair, and then open the repaired files'": lengths_of_damaged_records,
}
