"""`ragged="pad"` and `pad_to=` for the lists that `map` and `map_records` make, such as tokens of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps

TEXTS = ["a", "bb", "", "dddd"]
FULL = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


@pytest.fixture
def data(tmp_path: Path) -> ps.Dataset:
    ps.write({"text": TEXTS, "id": range(4)}, tmp_path / "t.parquet")
    return ps.open(tmp_path / "t.parquet")


def by_record(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "tok": [1] * len(record["text"])}


def by_batch(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "tok": [[1] * len(text) for text in batch["text"]]}


def as_arrays(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "tok": [np.ones(len(text), np.int16) for text in batch["text"]]}


def as_offsets(batch: dict[str, Any]) -> dict[str, Any]:
    lengths = [len(text) for text in batch["text"]]
    return {**batch, "tok": (np.ones(sum(lengths), int), np.cumsum([0, *lengths]))}


def one(data: ps.Dataset, **options: Any) -> dict[str, Any]:
    (batch,) = ps.Loader(data, len(data), **options)
    return batch


WAYS = [{"map_records": by_record}, {"map": by_batch}, {"map": as_arrays}]
WAYS_AND_OFFSETS = [*WAYS, {"map": as_offsets}]


@pytest.mark.parametrize("way", WAYS)
def test_lists_are_padded_to_the_longest_of_the_batch(
    data: ps.Dataset, way: dict[str, Any]
) -> None:
    batch = one(data, ragged="pad", **way)
    assert batch["tok"].tolist() == FULL
    assert batch["tok"].dtype == (np.int16 if way.get("map") is as_arrays else np.int64)
    assert batch["text"].tolist() == TEXTS
    tensors = next(iter(ps.Loader(data, 4, ragged="pad", **way).torch()))
    assert tensors["tok"].tolist() == FULL
    assert one(data, ragged={"tok": "pad"}, **way)["tok"].tolist() == FULL


@pytest.mark.parametrize("way", WAYS_AND_OFFSETS)
def test_lists_are_padded_to_a_length_with_a_value_a_mask_and_lengths(
    data: ps.Dataset, way: dict[str, Any]
) -> None:
    pad = ps.Pad(5, value=-1, mask=True, lengths=True)
    batch = one(data, pad_to={"tok": pad}, **way)
    assert list(batch) == ["text", "id", "tok", "tok_mask", "tok_length"]
    assert batch["tok"].tolist() == [[n or -1 for n in row] + [-1] for row in FULL]
    assert (batch["tok_mask"] == (batch["tok"] == 1)).all()
    assert batch["tok_length"].tolist() == [1, 2, 0, 4]
    short = one(data, pad_to={"tok": 2}, truncate=True, **way)["tok"]
    assert short.tolist() == [row[:2] for row in FULL]
    with pytest.raises(ps.SchemaError, match="a list of 4 values does not fit") as caught:
        one(data, pad_to={"tok": 3}, **way)
    assert caught.value.field == "tok"
    assert any("for record 3" in note for note in caught.value.__notes__)


def test_a_column_of_the_data_may_become_lists(data: ps.Dataset) -> None:
    def tokens(record: dict[str, Any]) -> dict[str, Any]:
        return {"text": [1] * len(record["text"])}

    assert one(data, map_records=tokens, pad_to={"text": 4})["text"].tolist() == FULL


def test_map_gets_what_map_records_made_padded(data: ps.Dataset) -> None:
    def double(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "tok": batch["tok"] * 2}

    pad = {"tok": ps.Pad(4, mask=True)}
    batch = one(data, map_records=by_record, map=double, pad_to=pad)
    assert batch["tok"].tolist() == (np.array(FULL) * 2).tolist()
    assert batch["tok_mask"].tolist() == (np.array(FULL) == 1).tolist()


def test_worker_processes_pad_too(data: ps.Dataset) -> None:
    from user_functions import tokens_of

    batch = one(data, map_records=tokens_of, pad_to={"tok": ps.Pad(4, mask=True)}, processes=1)
    assert batch["tok"].tolist() == FULL
    assert batch["tok_mask"].sum() == 7


def test_records_that_only_fill_a_batch_have_a_mask_of_false(data: ps.Dataset) -> None:
    pad = {"tok": ps.Pad(4, mask=True, lengths=True)}
    last = list(ps.Loader(data, 3, map_records=by_record, pad_to=pad, uneven="pad"))[-1]
    assert last["mask"].tolist() == [True, False, False]
    assert last["tok_mask"].any(1).tolist() == [True, False, False]
    assert last["tok_length"].tolist() == [4, 0, 0]


def nested(record: dict[str, Any]) -> dict[str, Any]:
    return {"box": [[float(n), 1.0] for n in range(record["id"])]}


def in_arrays(record: dict[str, Any]) -> dict[str, Any]:
    return {"box": np.array(nested(record)["box"]).reshape(-1, 2)}


def test_lists_of_lists_need_two_lengths_and_arrays_one(data: ps.Dataset) -> None:
    rows = one(data, map_records=nested, pad_to={"box": (3, 2)})["box"]
    assert rows.shape == (4, 3, 2)
    assert rows[2].tolist() == [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    for options in ({"pad_to": {"box": 3}}, {"ragged": "pad"}):
        assert (one(data, map_records=in_arrays, **options)["box"] == rows).all()
    assert (one(data, map_records=nested, ragged="pad")["box"] == rows).all()
    with pytest.raises(ps.SchemaError, match="lists of 2 levels, and pad_to= has 1") as caught:
        one(data, map_records=nested, pad_to={"box": 3})
    assert caught.value.hint == "pad_to={'box': (length, length)}"
    first = next(iter(ps.Loader(data, 1, map_records=nested, pad_to={"box": (3, 2)})))
    assert first["box"].shape == (1, 3, 2)  # without any box


def images(record: dict[str, Any]) -> dict[str, Any]:
    return {"image": np.zeros((record["id"] + 1, 2, 3), np.uint8)}


def dicts(record: dict[str, Any]) -> dict[str, Any]:
    return {"objects": [{"label": 1}] * record["id"]}


@pytest.mark.parametrize("function", [images, dicts])
def test_images_and_lists_of_dicts_stay_lists(
    data: ps.Dataset, function: Callable[..., Any]
) -> None:
    (column,) = one(data, map_records=function, ragged="pad").values()
    assert isinstance(column, list)
    assert len(column) == 4


def test_without_options_lists_stay_lists(data: ps.Dataset) -> None:
    for ragged in ("offsets", "list"):
        tokens = one(data, map_records=by_record, ragged=ragged)["tok"]
        assert [row.tolist() for row in tokens] == [[1], [1, 1], [], [1] * 4]


WRONG = [
    ({"pad_to": {"tik": 4}, "map_records": by_record}, "neither the data nor map= .* has lists"),
    ({"pad_to": {"id": 4}, "map": by_batch}, "neither the data nor map= .* has lists"),
    ({"pad_to": {"tok": 4}, "map": lambda batch: (batch["id"],)}, "returned no dict"),
    ({"pad_to": {"tok": ps.Pad(4, value=0.5)}, "map": by_batch}, "0.5 of Pad does not fit int64"),
    ({"pad_to": {"tok": ps.Pad(4, value=1 << 40)}, "map": as_arrays}, "does not fit int16"),
    (
        {
            "pad_to": {"tok": ps.Pad(4, mask=True)},
            "map_records": lambda record: {"tok": [1], "tok_mask": [1]},
        },
        "Pad adds 'tok_mask'",
    ),
    ({"pad_to": {"objects": 4}, "map_records": dicts}, "cannot be padded: they hold dicts"),
    (
        {"pad_to": {"tok": 4}, "map_records": lambda record: {"tok": [1, [2]]}},
        "values and lists side by side",
    ),
    ({"pad_to": {"tok": 4}}, "no such column for pad_to="),
    ({"ragged": {"tok": "list"}, "map": by_batch}, "no such column for ragged="),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_padded_is_refused(
    data: ps.Dataset, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ps.SchemaError, match=message):
        one(data, **options)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6))
def test_lists_that_a_function_makes_are_padded_like_those_of_the_data(
    tmp_path: Path, rows: list[list[int]]
) -> None:
    ps.write({"a": rows, "n": range(len(rows))}, tmp_path / "a.parquet", overwrite=True)
    ds = ps.open(tmp_path / "a.parquet")
    pad = ps.Pad(6, value=-1, mask=True, lengths=True)
    ours = one(ds, columns=["n"], map_records=lambda r: {"a": rows[r["n"]]}, pad_to={"a": pad})
    theirs = one(ds, columns=["a"], pad_to={"a": pad})
    assert {name: column.tolist() for name, column in ours.items()} == {
        name: column.tolist() for name, column in theirs.items()
    }
