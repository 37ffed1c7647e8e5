"""Columns of lists of structs, such as the objects in an image: each field becomes a column of lists."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets
import penstock as ps
from penstock.loader._columns import as_arrays
from penstock.loader._padding import ArrayOptions

OBJECT = pa.struct(
    [("box", pa.list_(pa.float32())), ("label", pa.int64()), ("at", pa.struct([("x", pa.int32())]))]
)
RECORDS: list[dict[str, Any]] = [
    {
        "id": 0,
        "objects": [
            {"box": [1.0, 2.0, 3.0, 4.0], "label": 1, "at": {"x": 10}},
            {"box": [5.0], "label": 2, "at": {"x": 20}},
        ],
    },
    {"id": 1, "objects": []},
    {"id": 2, "objects": [{"box": [], "label": 3, "at": {"x": 30}}]},
]
TABLE = pa.Table.from_pylist(
    RECORDS, schema=pa.schema([("id", pa.int64()), ("objects", pa.list_(OBJECT))])
)
FILES = ("a.parquet", "a.arrow", "a.msgpack", "a.tar")


def opened(folder: Path, name: str = "a.parquet", table: pa.Table = TABLE) -> ps.Dataset:
    ps.write(table, folder / name, overwrite=True)
    return ps.open(folder / name)


def batch_of(ds: ps.Dataset, **options: Any) -> dict[str, Any]:
    (batch,) = ps.Loader(ds, len(ds), **options)
    return batch["objects"]


@pytest.mark.parametrize("name", FILES)
def test_fields_share_their_offsets(tmp_path: Path, name: str) -> None:
    ds = opened(tmp_path, name)
    assert [ds[n] for n in range(3)] == RECORDS
    found = batch_of(ds)
    labels, offsets = found["label"]
    assert (labels.tolist(), offsets.tolist()) == ([1, 2, 3], [0, 2, 2, 3])
    boxes, inner, outer = found["box"]
    assert (boxes.tolist(), inner.tolist()) == ([1, 2, 3, 4, 5], [0, 4, 5, 5])
    assert found["at"]["x"][0].tolist() == [10, 20, 30]
    assert outer is offsets
    assert found["at"]["x"][1] is offsets


def test_files_of_hugging_face(tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "objects": datasets.List(
                {
                    "bbox": datasets.List(datasets.Value("float32"), length=4),
                    "kind": datasets.ClassLabel(names=["cat", "dog"]),
                }
            )
        }
    )
    objects = [[{"bbox": [0, 1, 2, 3], "kind": 1}, {"bbox": [4, 5, 6, 7], "kind": 0}], []]
    made = datasets.Dataset.from_dict({"objects": objects}, features=features)
    made.save_to_disk(tmp_path / "saved")
    made.to_parquet(tmp_path / "made.parquet")
    for source in (tmp_path / "saved" / "*.arrow", tmp_path / "made.parquet"):
        ds = ps.open(str(source))
        assert [ds[n]["objects"] for n in range(2)] == objects
        found = batch_of(ds)
        assert found["bbox"][0].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert found["kind"][0].tolist() == [1, 0]
        assert found["kind"][1].tolist() == [0, 2, 2]


def test_padded_fields(tmp_path: Path) -> None:
    ds = opened(tmp_path)
    found = batch_of(ds, ragged="pad")
    assert found["label"].tolist() == [[1, 2], [0, 0], [3, 0]]
    assert found["box"].shape == (3, 2, 4)
    assert found["box"][0].tolist() == [[1, 2, 3, 4], [5, 0, 0, 0]]
    assert found["at"]["x"].tolist() == [[10, 20], [0, 0], [30, 0]]


def test_an_argument_for_a_field_overrides_that_for_its_column(tmp_path: Path) -> None:
    ds = opened(tmp_path)
    found = batch_of(ds, pad_to={"objects": 3, "objects.box": (2, 5)})
    assert found["label"].tolist() == [[1, 2, 0], [0, 0, 0], [3, 0, 0]]
    assert found["at"]["x"].shape == (3, 3)
    assert found["box"].shape == (3, 2, 5)
    found = batch_of(ds, ragged={"objects": "pad", "objects.box": "list"})
    assert found["label"].shape == (3, 2)
    assert [[box.tolist() for box in boxes] for boxes in found["box"]] == [
        [[1, 2, 3, 4], [5]],
        [],
        [[]],
    ]
    found = batch_of(ds, pad_to={"objects.label": 1}, truncate=True)
    assert found["label"].tolist() == [[1], [0], [3]]
    assert len(found["box"]) == 3  # values, inner and outer offsets


def test_lengths_that_do_not_fit_every_field_are_refused(tmp_path: Path) -> None:
    ds = opened(tmp_path)
    with pytest.raises(ps.SchemaError, match="lists of 2 levels") as caught:
        ps.Loader(ds, 1, pad_to={"objects": 3})
    assert caught.value.field == "objects.box"
    assert "'objects.box': (length, length)" in str(caught.value.hint)
    for word in ("pad_to", "ragged", "fill"):
        with pytest.raises(ps.SchemaError, match=f"no such column for {word}=") as caught:
            ps.Loader(ds, 1, **{word: {"objects.size": "pad" if word == "ragged" else 1}})
        assert caught.value.field == "objects.size"


def test_a_long_list_and_a_missing_value_name_record_and_field(tmp_path: Path) -> None:
    ds = opened(tmp_path)
    with pytest.raises(ps.SchemaError, match="does not fit pad_to") as caught:
        batch_of(ds, pad_to={"objects.box": (2, 3)})
    assert (caught.value.record, caught.value.field) == (0, "objects.box")
    rows = [{"objects": [{"label": 1}]}, {"objects": [{"label": 2}, {"label": None}]}]
    missing = pa.Table.from_pylist(rows, schema=TABLE.schema.remove(0))
    ds = opened(tmp_path, table=missing).select(["objects"])
    with pytest.raises(ps.SchemaError, match="missing") as caught:
        batch_of(ds)
    assert (caught.value.record, caught.value.field) == (1, "objects.label")
    found = batch_of(ds, fill={"objects.label": -1, "objects.at.x": 0})
    assert found["label"][0].tolist() == [1, 2, -1]
    assert batch_of(ds, fill={"objects": -1})["at"]["x"][0].tolist() == [-1, -1, -1]


def test_buckets_by_the_number_of_structs(tmp_path: Path) -> None:
    table = pa.table({"objects": [[{"label": n}] * (n % 4) for n in range(20)]})
    loader = ps.Loader(opened(tmp_path, table=table), 4, buckets={"objects": [1, 3]}, uneven="pad")
    assert {batch["objects"]["label"].shape for batch in loader} == {(4, 1), (4, 3)}


def test_records_of_map_records_hold_lists_of_dicts(tmp_path: Path) -> None:
    first = [
        {"label": 1, "box": [1, 2], "at": {"x": 5}, "parts": [{"n": 7}, {"n": 8}]},
        {"label": 2, "box": [3], "at": {"x": 6}, "parts": []},
    ]
    rows = {
        "objects": [first, []],
        "one": [{"list": [1, 2]}, {"list": []}],
        "deep": [[[{"k": 1}], []], []],
    }
    seen: list[dict[str, Any]] = []

    def count(record: dict[str, Any]) -> dict[str, Any]:
        seen.append(plain(record))
        return {"sum": sum(int(one["label"]) for one in record["objects"])}

    ds = opened(tmp_path, table=pa.table(rows))
    (batch,) = ps.Loader(ds, 2, map_records=count)
    assert batch["sum"].tolist() == [3, 0]
    assert seen == [{name: column[n] for name, column in rows.items()} for n in range(2)]
    (batch,) = ps.Loader(ds, 2, columns=["objects"], map_records=lambda record: record)
    assert plain(batch["objects"]) == [first, []]
    padded = ps.Loader(
        ds, 2, columns=["deep", "one"], ragged="pad", map_records=lambda record: record
    )
    assert plain(next(iter(padded))["one"]) == {"list": [[1, 2], [0, 0]]}


def plain(value: Any) -> Any:
    """Convert arrays, also inside dicts and lists, to Python lists."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def test_tensors_of_other_libraries(tmp_path: Path) -> None:
    loader = ps.Loader(opened(tmp_path), 3)
    (batch,) = loader.torch()
    assert batch["objects"]["label"][0].tolist() == [1, 2, 3]
    with pytest.raises(ps.SchemaError, match="Keras does not take ragged") as caught:
        loader.keras("id", "objects")[0]
    assert caught.value.field == "objects.box"
    padded = ps.Loader(opened(tmp_path), 3, ragged="pad")
    assert padded.padded_columns == ["objects.box", "objects.label", "objects.at.x"]
    assert padded.keras("id", "objects")[0][1]["label"].shape == (3, 2)


structs = st.fixed_dictionaries(
    {
        "a": st.integers(-9, 9),
        "b": st.none() | st.lists(st.integers(-9, 9), max_size=3),
        "c": st.none() | st.text(max_size=3),
    }
)
rows = st.lists(
    st.none() | st.lists(st.none() | st.lists(structs, max_size=3), max_size=3), max_size=5
)
KIND = pa.list_(
    pa.list_(pa.struct([("a", pa.int8()), ("b", pa.list_(pa.int16())), ("c", pa.string())]))
)


@given(rows, st.integers(0, 3))
def test_every_value_is_found_by_the_offsets(values: list[Any], start: int) -> None:
    batch = pa.record_batch({"x": pa.array(values, KIND)}).slice(min(start, len(values)))
    found = as_arrays(batch, ArrayOptions())["x"]
    numbers, inner, outer = found["a"]
    texts = found["c"][0]
    deep, deepest, _, _ = found["b"]
    records = [
        [
            [
                {"a": numbers[n], "b": deep[deepest[n] : deepest[n + 1]].tolist(), "c": texts[n]}
                for n in range(inner[m], inner[m + 1])
            ]
            for m in range(first, last)
        ]
        for first, last in pairwise(outer)
    ]
    expected = [
        [[{**one, "b": one["b"] or []} for one in structs or []] for structs in record or []]
        for record in values[min(start, len(values)) :]
    ]
    assert records == expected
    listed = as_arrays(batch, ArrayOptions("list"))["x"]
    assert [[one.tolist() for one in lists] for lists in listed["a"]] == [
        [[one["a"] for one in structs] for structs in record] for record in expected
    ]
    padded = as_arrays(batch, ArrayOptions("pad"))["x"]["a"]
    assert padded.sum() == np.sum(numbers)
    assert padded.ndim == 3
