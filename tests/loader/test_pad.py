"""`ps.Pad`: the value of padding, a mask, and the lengths of lists, beside padded lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps

TOKENS = [[5, 6, 7], [8], [], None, [1, 2, 3, 4, 5]]
BOXES = [[[1.0, 2.0], [3.0]], [], [[], [4.0, 5.0, 6.0]], None, [[7.0]]]
OBJECTS = [[{"label": n, "score": 0.5} for n in range(count)] for count in (2, 0, 1, 3, 1)]


@pytest.fixture
def data(tmp_path: Path) -> ps.Dataset:
    table = pa.table({"id": range(5), "tokens": TOKENS, "boxes": BOXES, "objects": OBJECTS})
    ps.write(table, tmp_path / "a.parquet")
    return ps.open(tmp_path / "a.parquet")


def batch_of(data: ps.Dataset, **options: Any) -> dict[str, Any]:
    (batch,) = ps.Loader(data, 5, **options)
    return batch


def check(batch: dict[str, Any], length: int, value: int) -> None:
    """Compare with plain Python."""
    rows = [(row or [])[:length] for row in TOKENS]
    assert batch["tokens"].tolist() == [row + [value] * (length - len(row)) for row in rows]
    assert batch["tokens_length"].tolist() == [len(row) for row in rows]
    assert batch["tokens_mask"].tolist() == [[n < len(row) for n in range(length)] for row in rows]
    assert batch["tokens_length"].dtype == np.int64
    assert batch["tokens_mask"].dtype == bool


def test_lists_are_padded_with_the_value_to_a_length(data: ps.Dataset) -> None:
    pad = ps.Pad(7, value=-1, mask=True, lengths=True)
    batch = batch_of(data, columns=["id", "tokens"], pad_to={"tokens": pad})
    check(batch, 7, -1)
    assert list(batch) == ["id", "tokens", "tokens_mask", "tokens_length"]


def test_lists_are_padded_on_the_left(data: ps.Dataset) -> None:
    options: dict[str, Any] = {"value": -1, "mask": True, "lengths": True, "side": "left"}
    for length, width in ((7, 7), (None, 5)):
        pad = ps.Pad(length, **options)
        batch = batch_of(data, columns=["tokens"], pad_to={"tokens": pad})
        rows = [row or [] for row in TOKENS]
        assert batch["tokens"].tolist() == [[-1] * (width - len(row)) + row for row in rows]
        assert batch["tokens_length"].tolist() == [len(row) for row in rows]
        assert (batch["tokens_mask"] == (batch["tokens"] != -1)).all()
    pad = ps.Pad(2, **options)
    batch = batch_of(data, columns=["tokens"], pad_to={"tokens": pad}, truncate=True)
    assert batch["tokens"].tolist() == [[5, 6], [-1, 8], [-1, -1], [-1, -1], [1, 2]]


def test_lists_of_lists_and_made_lists_are_padded_on_the_left(data: ps.Dataset) -> None:
    pad = ps.Pad((2, 3), value=0.5, mask=True, side="left")
    batch = batch_of(data, columns=["boxes"], pad_to={"boxes": pad})
    empty = [0.5] * 3
    expected = [[[0.5, 1, 2], [0.5, 0.5, 3]], [empty, empty], [empty, [4, 5, 6]], [empty, empty]]
    assert batch["boxes"].tolist() == [*expected, [empty, [0.5, 0.5, 7]]]
    assert (batch["boxes_mask"] == (batch["boxes"] != 0.5)).all()
    made = batch_of(
        data,
        columns=["id"],
        map_records=lambda record: {"made": [7] * record["id"]},
        pad_to={"made": ps.Pad(4, side="left")},
    )
    assert made["made"].tolist() == [[0] * (4 - n) + [7] * n for n in range(5)]
    with pytest.raises(ValueError, match="side='top' of Pad is not 'right' or 'left'"):
        ps.Pad(4, side="top")  # type: ignore[arg-type]


def test_buckets_are_padded_on_the_left(data: ps.Dataset) -> None:
    pads = {"tokens": ps.Pad(value=-1, side="left")}
    loader = ps.Loader(data, 2, columns=["tokens"], buckets={"tokens": [2, 6]}, pad_to=pads)
    rows = [row for batch in loader for row in batch["tokens"].tolist()]
    assert [-1, 8] in rows and [-1, 1, 2, 3, 4, 5] in rows


def test_truncated_lists_have_the_length_that_is_left(data: ps.Dataset) -> None:
    pad = ps.Pad(2, value=9, mask=True, lengths=True)
    check(batch_of(data, columns=["tokens"], pad_to={"tokens": pad}, truncate=True), 2, 9)


@pytest.mark.parametrize("ragged", ["offsets", "list", "pad", {"tokens": "list"}])
def test_without_a_length_lists_are_padded_to_the_longest(data: ps.Dataset, ragged: Any) -> None:
    pads = {"tokens": ps.Pad(value=-1, mask=True, lengths=True)}
    loader = ps.Loader(data, 5, columns=["tokens"], ragged=ragged, pad_to=pads)
    assert loader.padded_columns == ["tokens"]
    check(next(iter(loader)), 5, -1)


def test_other_columns_keep_their_way(data: ps.Dataset) -> None:
    batch = batch_of(data, columns=["tokens", "boxes"], pad_to={"tokens": ps.Pad()}, ragged="list")
    assert batch["tokens"].shape == (5, 5)
    assert isinstance(batch["boxes"], list)
    batch = batch_of(data, columns=["tokens", "boxes"], pad_to={"tokens": ps.Pad(8)})
    assert len(batch["boxes"]) == 3


def test_buckets_take_the_value_the_mask_and_the_lengths(data: ps.Dataset) -> None:
    pads = {"tokens": ps.Pad(value=-1, mask=True, lengths=True)}
    loader = ps.Loader(
        data, 2, columns=["id", "tokens"], buckets={"tokens": [2, 6]}, pad_to=pads, uneven="pad"
    )
    seen = 0
    for batch in loader:
        width = batch["tokens"].shape[1]
        assert width in (2, 6)
        names = ("id", "mask", "tokens", "tokens_mask", "tokens_length")
        for number, is_real, row, mask, length in zip(*map(batch.get, names), strict=True):
            tokens = (TOKENS[number] or []) if is_real else []
            assert row.tolist() == tokens + [-1] * (width - len(tokens))
            assert mask.sum() == length == len(tokens)
            seen += 1
    assert seen == 6


def test_lists_of_lists_have_a_mask_of_all_values(data: ps.Dataset) -> None:
    pad = ps.Pad((2, 3), value=-1.0, mask=True, lengths=True)
    batch = batch_of(data, columns=["boxes"], pad_to={"boxes": pad})
    assert batch["boxes"].shape == batch["boxes_mask"].shape == (5, 2, 3)
    assert batch["boxes"][0].tolist() == [[1.0, 2.0, -1.0], [3.0, -1.0, -1.0]]
    assert (batch["boxes_mask"] == (batch["boxes"] != -1.0)).all()
    assert batch["boxes_length"].tolist() == [2, 0, 2, 0, 1]


def test_fields_of_structs_have_their_columns_beside_them(data: ps.Dataset) -> None:
    pads = {"objects.label": ps.Pad(4, value=-1, mask=True, lengths=True)}
    objects = batch_of(data, columns=["objects"], pad_to=pads)["objects"]
    assert objects["label"][0].tolist() == [0, 1, -1, -1]
    assert objects["label_length"].tolist() == [2, 0, 1, 3, 1]
    assert objects["label_mask"].sum(1).tolist() == [2, 0, 1, 3, 1]
    assert len(objects["score"]) == 2
    whole = batch_of(data, columns=["objects"], pad_to={"objects": ps.Pad(4, lengths=True)})
    assert whole["objects"]["score"].shape == whole["objects"]["label"].shape == (5, 4)
    assert whole["objects"]["score_length"].tolist() == [2, 0, 1, 3, 1]


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.lists(st.integers(0, 255), max_size=6), min_size=1, max_size=9),
    value=st.integers(0, 255),
)
def test_the_mask_gives_the_lists_back(tmp_path: Path, rows: list[list[int]], value: int) -> None:
    table = pa.table({"a": pa.array(rows, pa.list_(pa.uint8()))})
    ps.write(table, tmp_path / "b.arrow", overwrite=True)
    pads = {"a": ps.Pad(value=value, mask=True, lengths=True)}
    for batch in ps.Loader(ps.open(tmp_path / "b.arrow"), 4, pad_to=pads):
        again = [row[mask].tolist() for row, mask in zip(batch["a"], batch["a_mask"], strict=True)]
        assert again == rows[: len(again)]
        rows = rows[len(again) :]
        assert batch["a_length"].tolist() == [len(row) for row in again]
        assert (batch["a"][~batch["a_mask"]] == value).all()


@pytest.mark.parametrize("world_size", [1, 2])
def test_records_that_only_fill_a_batch_have_no_real_values(
    data: ps.Dataset, world_size: int
) -> None:
    pads = {
        "tokens": ps.Pad(5, mask=True, lengths=True),
        "boxes": ps.Pad((2, 3), mask=True, lengths=True),
        "objects": ps.Pad(3, mask=True, lengths=True),
    }
    values = dict.fromkeys(["tokens", "boxes", "objects.label"], 0)
    for rank in range(world_size):
        loader = ps.Loader(data, 3, pad_to=pads, uneven="pad", rank=rank, world_size=world_size)
        for batch in loader:
            assert len(batch["mask"]) == 3
            fields = {f"objects.{name}": array for name, array in batch["objects"].items()}
            for name in values:
                mask = {**batch, **fields}[f"{name}_mask"]
                lengths = {**batch, **fields}[f"{name}_length"]
                assert not mask[~batch["mask"]].any()
                assert not lengths[~batch["mask"]].any()
                assert not {**batch, **fields}[name][~batch["mask"]].any()  # 0 is the pad value
                values[name] += int(mask.sum())
    assert values == {"tokens": 9, "boxes": 7, "objects.label": 7}


def test_replacements_for_damaged_records_have_no_real_values(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": range(4), "tokens": [[n + 1] * (n + 1) for n in range(4)]}, path)
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # in the last record
    path.write_bytes(content)
    data = ps.open(path, damage="skip")
    pads = {"tokens": ps.Pad(4, mask=True, lengths=True)}
    (batch,) = ps.Loader(data, 4, pad_to=pads, uneven="pad")
    assert batch["mask"].tolist() == [True, True, True, False]
    assert batch["tokens_length"].tolist() == [1, 2, 3, 0]
    assert batch["tokens_mask"].sum(1).tolist() == [1, 2, 3, 0]


def test_text_is_padded_with_the_value(tmp_path: Path) -> None:
    ps.write(pa.table({"words": [["a", "b"], ["c"]]}), tmp_path / "a.parquet")
    data = ps.open(tmp_path / "a.parquet")
    (batch,) = ps.Loader(data, 2, pad_to={"words": ps.Pad(3, value="")})
    assert batch["words"].tolist() == [["a", "b", ""], ["c", "", ""]]
    (batch,) = ps.Loader(data, 2, pad_to={"words": ps.Pad(3)})
    assert batch["words"].tolist() == [["a", "b", None], ["c", None, None]]


def test_the_added_columns_reach_torch_jax_and_keras(data: ps.Dataset) -> None:
    torch = pytest.importorskip("torch")
    pads = {"tokens": ps.Pad(7, value=-1, mask=True, lengths=True)}
    loader = ps.Loader(data, 5, columns=["tokens"], pad_to=pads)
    (batch,) = loader.torch()
    check({name: array.numpy() for name, array in batch.items()}, 7, -1)
    assert batch["tokens_mask"].dtype == torch.bool
    pytest.importorskip("jax")
    (batch,) = loader.jax()
    found = {name: np.asarray(array) for name, array in batch.items()}
    check({**found, "tokens_length": found["tokens_length"].astype(np.int64)}, 7, -1)
    pytest.importorskip("keras")
    check(loader.keras(x=["tokens", "tokens_mask", "tokens_length"], y=None)[0][0], 7, -1)


@pytest.mark.parametrize(
    ("pads", "message"),
    [
        ({"id": ps.Pad(3)}, "for lists"),
        ({"id": ps.Pad()}, "for lists"),
        ({"none": ps.Pad()}, "no such column"),
        ({"tokens": ps.Pad(3, value=0.5)}, "does not fit int64"),
        ({"tokens": ps.Pad(3, value="x")}, "does not fit int64"),
        ({"tokens": ps.Pad(0)}, "at least 1"),
        ({"boxes": ps.Pad(3)}, "2 levels"),
    ],
)
def test_a_wrong_pad_is_refused_at_once(data: ps.Dataset, pads: Any, message: str) -> None:
    with pytest.raises((ps.SchemaError, ValueError), match=message):
        ps.Loader(data, 2, pad_to=pads)
