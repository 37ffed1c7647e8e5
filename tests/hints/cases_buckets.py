"""Hints of `buckets=` by other values than lengths of lists, and of `fill=` for missing images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from steps import Case, Cases

import penstock as ps


def bucketed(data: ps.Dataset, key: str) -> list[int]:
    """The records of an epoch in buckets."""
    loader = ps.Loader(data, 2, buckets={key: [4]}, threads=0)
    return sorted(n for batch in loader for n in batch["id"].tolist())


def a_key(column: str, values: Any, hint: str, advised_key: str) -> Case:
    ps.write(pa.table({"id": [0, 1, 2], column: values}), "a.parquet")
    data = ps.open("a.parquet")

    def advised() -> None:
        assert bucketed(data, advised_key) == [0, 1, 2]

    return Case(lambda: bucketed(data, column), advised, hint)


def text_as_a_key() -> Case:
    return a_key("text", ["a", "bb", "ccc"], 'buckets={"len(text)": […]}', "len(text)")


def floats_as_a_key() -> Case:
    key = 'cast(score, "int64")'
    return a_key("score", [1.0, 2.0, 3.0], f"buckets={{'{key}': […]}}", key)


def a_missing_value_of_a_key() -> Case:
    ps.write(pa.table({"id": [0, 1, 2], "n": [1, None, 3]}), "a.parquet")
    data = ps.open("a.parquet")

    def advised() -> None:
        assert bucketed(data.filter("n is not null"), "n") == [0, 2]

    return Case(lambda: bucketed(data, "n"), advised)


def missing_images_of_any_size() -> Case:
    picture = ps.encode_images([np.zeros((4, 6, 3), np.uint8)], "png").to_pylist()
    ps.write(pa.table({"image": pa.array([*picture, None], pa.binary())}), "a.parquet")

    def filled(spec: ps.Image) -> np.ndarray:
        data, decode = ps.open("a.parquet"), {"image": spec}
        return next(iter(ps.Loader(data, 2, decode=decode, fill={"image": 9})))["image"]

    def advised() -> None:
        assert (filled(ps.Image(224))[1] == 9).all()

    return Case(lambda: filled(ps.Image()), advised)


CASES: Cases = {
    "'ds.filter, to leave out such records'": a_missing_value_of_a_key,
    "'ps.Image(size), such as ps.Image(224)'": missing_images_of_any_size,
    "_hint(key, type_, is_column=key in names)": (text_as_a_key, floats_as_a_key),
}
