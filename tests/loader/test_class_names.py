"""Class names: the list that a loader uses, names that it refuses, and the digest in its state."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.loader import _class_names as class_names
from penstock.storage import MemoryStorage

NAMES = ["dog", "eel", "fox", "cat", "cat", "fox", "fox", "fox", "cat"]


def labels(names: list[Any], index: pa.DataType | None = None, value: Any = None) -> pa.Array:
    type_ = pa.dictionary(index or pa.int32(), value or pa.string())
    return pa.array(names).dictionary_encode().cast(type_)


def streamed(path: Path, *batches: pa.RecordBatch) -> ps.Dataset:
    """An Arrow stream in which every batch has a different dictionary."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return ps.open(path)


def replaced(path: Path) -> ps.Dataset:
    parts = [NAMES[:3], NAMES[3:5], NAMES[5:]]
    return streamed(path, *(pa.record_batch({"label": labels(part)}) for part in parts))


def all_of(batches: Any) -> list[Any]:
    return [int(label) for batch in batches for label in batch["label"]]


WANTED = [0, 1, 2, 3, 3, 2, 2, 2, 3]


def test_numbers_are_in_the_order_of_first_appearance(tmp_path: Path) -> None:
    loader = ps.Loader(replaced(tmp_path / "a.arrows"), 2)
    assert loader.class_names == {"label": ["dog", "eel", "fox", "cat"]}
    assert all_of(loader) == WANTED == all_of(loader[step] for step in range(len(loader)))
    assert pickle.loads(pickle.dumps(loader)).class_names == loader.class_names


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
@pytest.mark.parametrize("rows", [2, 100])
def test_numbers_are_the_codes_of_pandas(tmp_path: Path, ending: str, rows: int) -> None:
    pd = pytest.importorskip("pandas")
    kind = pd.CategoricalDtype(["fox", "ape", "dog", "eel", "cat"])
    frame = pd.DataFrame({"label": pd.Series(NAMES, dtype=kind)})
    train, val = frame.iloc[:6], frame.iloc[6:]
    for name, part in (("train", train), ("val", val)):
        path = tmp_path / f"{name}.{ending}"
        table = pa.Table.from_pandas(part, preserve_index=False)
        if ending == "parquet":
            part.to_parquet(path, row_group_size=rows, index=False)
        else:
            with pa.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table, rows)
        loader = ps.Loader(ps.open(path), 2)
        assert loader.class_names == {"label": list(kind.categories)}
        assert all_of(loader) == part["label"].cat.codes.tolist()
    every = ps.open(tmp_path)
    for view in (every, every.filter('label != "dog"')):
        assert ps.Loader(view, 2).class_names == {"label": list(kind.categories)}


def test_names_of_other_dictionaries_follow(tmp_path: Path) -> None:
    for number, names in enumerate([["b", "a"], ["c", "a", "d"]]):
        label = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int8()), names)
        ps.write({"label": label}, tmp_path / f"{number}.parquet")
    loader = ps.Loader(ps.open(tmp_path), 4)
    assert loader.class_names == {"label": ["b", "a", "c", "d"]}
    assert all_of(loader) == [1, 1, 1, 1]


def test_every_adapter_has_the_same_numbers(tmp_path: Path) -> None:
    replaced(tmp_path / "a.arrows")
    program = f"""
import penstock as ps
ds = ps.open({str(tmp_path / "a.arrows")!r})
for view in (ps.Loader(ds, 2).torch(), ps.Loader(ds, 2).jax()):
    print([int(label) for batch in view for label in batch["label"]])
keras = ps.Loader(ds, 2).keras(x="label", y=None)
print([int(label) for step in range(len(keras)) for label in keras[step][0]])
"""
    done = subprocess.run(  # a separate process: a process that has JAX cannot fork, and other tests do
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.stdout.splitlines() == [str(WANTED)] * 3, done.stderr


def test_the_pass_is_made_once_for_a_dataset(tmp_path: Path, monkeypatch: Any) -> None:
    ds = replaced(tmp_path / "a.arrows")
    first = ps.Loader(ds, 2)
    monkeypatch.setattr(class_names, "_read", None)
    assert ps.Loader(ds, 3).class_names == first.class_names


def test_a_given_list_sets_the_order_without_a_pass_over_the_data(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(class_names, "_read", None)
    ds = replaced(tmp_path / "a.arrows")
    listed = ["ape", "cat", "dog", "eel", "fox"]
    loader = ps.Loader(ds, 4, class_names={"label": listed})
    assert [listed[n] for n in all_of(loader)] == NAMES
    assert loader.class_names == {"label": listed}


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string()])
def test_columns_of_text_have_numbers_if_a_list_is_given(tmp_path: Path, kind: Any) -> None:
    ps.write(pa.table({"label": pa.array(NAMES).cast(kind)}), tmp_path / "a.parquet")
    listed = sorted(set(NAMES))
    loader = ps.Loader(ps.open(tmp_path / "a.parquet"), 4, class_names={"label": listed})
    assert [listed[n] for n in all_of(loader)] == NAMES


def test_a_name_that_is_not_in_the_list_is_named_with_its_record(tmp_path: Path) -> None:
    ds = replaced(tmp_path / "a.arrows")
    loader = ps.Loader(ds, 4, class_names={"label": ["dog", "eel", "fox"]})
    with pytest.raises(ps.SchemaError, match="'cat'") as caught:
        list(loader)
    assert (caught.value.record, caught.value.field) == (3, "label")
    assert caught.value.file == str(tmp_path / "a.arrows")


def test_a_missing_label_is_named_with_its_record(tmp_path: Path) -> None:
    ds = streamed(tmp_path / "a.arrows", pa.record_batch({"label": labels(["b", None, "a"])}))
    with pytest.raises(ps.SchemaError, match="missing") as caught:
        list(ps.Loader(ds, 3))
    assert caught.value.record == 1
    assert all_of(ps.Loader(ds, 3, fill={"label": -1})) == [0, -1, 1]


def test_labels_inside_lists_and_structs(tmp_path: Path) -> None:
    def batch(tags: list[str], kinds: list[str]) -> pa.RecordBatch:
        lists = pa.ListArray.from_arrays([0, 1, len(tags)], labels(tags))
        fixed = pa.FixedSizeListArray.from_arrays(labels(tags[-1:] * 4), 2)
        kind = pa.StructArray.from_arrays([labels(kinds)], ["kind"])
        return pa.record_batch({"tags": lists, "pair": fixed, "object": kind})

    ds = streamed(
        tmp_path / "a.arrows",
        batch(["a", "b", "c"], ["x", "y"]),
        batch(["c", "a"], ["y", "x"]),
    )
    loader = ps.Loader(ds, 2, ragged="list")
    assert loader.class_names == {
        "tags": ["a", "b", "c"],
        "pair": ["c", "a"],
        "object.kind": ["x", "y"],
    }
    one, two = loader
    assert [x.tolist() for x in (*one["tags"], *two["tags"])] == [[0], [1, 2], [2], [0]]
    assert [x["object"]["kind"].tolist() for x in (one, two)] == [[0, 1], [1, 0]]
    assert [x["pair"].tolist() for x in (one, two)] == [[[0, 0]] * 2, [[1, 1]] * 2]
    with pytest.raises(ps.SchemaError) as caught:
        list(ps.Loader(ds, 4, class_names={"tags": ["a", "b"]}))
    assert (caught.value.record, caught.value.field) == (1, "tags")


def test_several_datasets_share_one_list_of_names(tmp_path: Path) -> None:
    ps.write({"label": labels(["z", "a"])}, tmp_path / "one.parquet")
    other = labels(["a", "b", "z"], pa.uint32(), pa.large_string())
    two = streamed(tmp_path / "two.arrows", pa.record_batch({"label": other}))
    loader = ps.Loader([ps.open(tmp_path / "one.parquet"), two], 2)
    assert all_of(loader) == [0, 1, 1, 2, 0] and loader.class_names == {"label": ["z", "a", "b"]}


def test_a_function_of_decode_gets_the_loaders_numbers(tmp_path: Path) -> None:
    ds = replaced(tmp_path / "a.arrows")
    decode = {"label": lambda column: column.indices.to_numpy(zero_copy_only=False)}
    assert all_of(ps.Loader(ds, 2, decode=decode)) == WANTED


def test_a_column_with_too_many_names_stays_text(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(class_names, "MOST_NAMES", 3)
    loader = ps.Loader(replaced(tmp_path / "a.arrows"), 9)
    assert next(iter(loader))["label"].tolist() == NAMES and loader.class_names == {}


def test_dictionaries_of_numbers_are_their_values(tmp_path: Path) -> None:
    ds = streamed(
        tmp_path / "a.arrows",
        *(pa.record_batch({"x": pa.array(v).dictionary_encode()}) for v in ([7, 5, 7], [5])),
    )
    assert [batch["x"].tolist() for batch in ps.Loader(ds, 2)] == [[7, 5], [7, 5]]


def test_damage_that_the_pass_finds_is_listed_when_the_loop_reaches_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"label": NAMES}, path)
    data = bytearray(path.read_bytes())
    data[data.index(b"eel")] ^= 1
    path.write_bytes(data)
    schema = pa.schema([("label", pa.dictionary(pa.int32(), pa.string()))])
    loader = ps.Loader(ps.open(path, schema=schema, damage="skip"), 3)
    assert loader.class_names == {"label": ["dog", "fox", "cat"]} and loader.damage == []
    list(loader)
    assert len(loader.damage) == 1


def test_a_remote_set_without_an_index_is_not_read_for_its_names(tmp_path: Path) -> None:
    ps.write({"label": NAMES}, tmp_path / "a.tfrecord")
    storage = MemoryStorage({"a.tfrecord": (tmp_path / "a.tfrecord").read_bytes()})
    schema = pa.schema([("label", pa.dictionary(pa.int32(), pa.string()))])
    ds = ps.open("a.tfrecord", storage=storage, schema=schema)
    with pytest.raises(ps.UnsupportedError, match="another machine"):
        ps.Loader(ds, 2)
    listed = sorted(set(NAMES))
    loader = ps.Loader(ds, 2, class_names={"label": listed})
    assert [listed[n] for n in all_of(loader)] == NAMES


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"lable": ["a"]}, ps.SchemaError),
        ({"number": ["a"]}, ps.SchemaError),
        ({"label": ["a", "a"]}, ValueError),
        ({"label": "abc"}, TypeError),
        ({"label": [1, 2]}, TypeError),
        (["label"], TypeError),
    ],
)
def test_an_impossible_list_is_refused(tmp_path: Path, given: Any, error: Any) -> None:
    ps.write({"label": labels(["a"]), "number": [1]}, tmp_path / "a.parquet")
    with pytest.raises(error):
        ps.Loader(ps.open(tmp_path / "a.parquet"), 1, class_names=given)


# -- states -------------------------------------------------------------------------------------


def loaders(tmp_path: Path, *lists: list[str] | None) -> list[ps.Loader]:
    path = tmp_path / "a.parquet"
    if not path.exists():
        ps.write({"label": NAMES}, path)
    ds = ps.open(path)
    return [ps.Loader(ds, 2, class_names=one and {"label": one}) for one in lists]


LONG = [f"a long name {n}" for n in range(1000)]


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (["a", "b"], ["b", "a"], "class 0 is 'a' in the state and 'b' here"),
        (["a", "b"], ["a", "b", "c"], "class 2 is missing in the state and 'c' here"),
        (["a", "b"], ["a"], "class 1 is 'b' in the state and missing here"),
        (["a"], None, "only the state"),
        (None, ["a"], "only this loader"),
        (LONG, LONG[::-1], "the same, in another order"),
        (LONG, [*LONG, "new"], "class 1000 is 'new' here"),
        (LONG, LONG[:-1], "1000 classes and this loader 999"),
        (LONG, [*LONG[:-1], "new"], "with other names"),
    ],
)
def test_a_state_with_other_class_names_is_refused_with_the_difference(
    tmp_path: Path, then: Any, now: Any, said: str
) -> None:
    one, other, again = loaders(tmp_path, then, now, then)
    state = json.dumps(one.state_dict())
    assert len(state) < 1024
    with pytest.raises(ps.StateError) as caught:
        other.load_state_dict(json.loads(state))
    assert said in str(caught.value)
    again.load_state_dict(json.loads(state))


@pytest.mark.parametrize("told", [1, [], {}, {"digest": 3, "of": 3}, {"of": {"label": 4}}, None])
def test_a_state_of_anything_else_is_refused(tmp_path: Path, told: Any) -> None:
    (loader,) = loaders(tmp_path, sorted(set(NAMES)))
    with pytest.raises(ps.StateError):
        loader.load_state_dict({**loader.state_dict(), "class_names": told})


# -- lists ----------------------------------------------------------------------------------------


def tokens(tmp_path: Path, values: Any, type_: Any = None) -> ps.Dataset:
    ps.write(pa.table({"tokens": pa.array(values, type_)}), tmp_path / "t.parquet")
    return ps.open(tmp_path / "t.parquet")


def test_lists_padded_to_a_length(tmp_path: Path) -> None:
    ds = tokens(tmp_path, [[1], [2, 3, 4], [], [5, 6]])
    found = [batch["tokens"].tolist() for batch in ps.Loader(ds, 2, pad_to={"tokens": 3})]
    assert found == [[[1, 0, 0], [2, 3, 4]], [[0, 0, 0], [5, 6, 0]]]
    with pytest.raises(ps.SchemaError, match="3 values") as caught:
        list(ps.Loader(ds, 2, pad_to={"tokens": 2}))
    assert (caught.value.record, caught.value.field) == (1, "tokens")
    loader = ps.Loader(ds, 4, pad_to={"tokens": 2}, truncate=True)
    assert next(iter(loader))["tokens"].tolist() == [[1, 0], [2, 3], [0, 0], [5, 6]]


def test_lists_of_lists_have_a_length_for_each_level(tmp_path: Path) -> None:
    ds = tokens(tmp_path, [[[1], [2, 3]], [[4, 5, 6]]])
    found = next(iter(ps.Loader(ds, 2, pad_to={"tokens": (2, 3)})))["tokens"]
    assert found.tolist() == [[[1, 0, 0], [2, 3, 0]], [[4, 5, 6], [0, 0, 0]]]
    with pytest.raises(ps.SchemaError) as caught:
        list(ps.Loader(ds, 2, pad_to={"tokens": (2, 2)}))
    assert caught.value.record == 1
    cut = next(iter(ps.Loader(ds, 2, pad_to={"tokens": (1, 2)}, truncate=True)))["tokens"]
    assert cut.tolist() == [[[1, 0]], [[4, 5]]]
    with pytest.raises(ps.SchemaError, match="2 levels"):
        ps.Loader(ds, 2, pad_to={"tokens": 2})


@pytest.mark.parametrize(
    ("values", "type_", "record"),
    [
        ([[1.0, 2.0], [3.0], [None]], None, 2),
        ([[1.0, None], [2.0], [3.0]], None, 0),
        ([[], [], [1, 2, None]], None, 2),
        ([[[1], [2, 3]], [], [[4, 5], [None]]], None, 2),
        ([[1, 2], [3, 4], [None, 6]], pa.list_(pa.int64(), 2), 2),
        ([[1, 2], None, [5, 6]], pa.list_(pa.int64(), 2), 1),
        ([[[1, 2]], [[3, 4]], [[5, None]]], pa.list_(pa.list_(pa.int64(), 2), 1), 2),
        ([[[1, 2]], [[3, 4], None]], pa.list_(pa.list_(pa.int64(), 2)), 1),
        ([{"x": [1]}, {"x": [2, None]}], None, 1),
    ],
)
@pytest.mark.parametrize("ragged", ["offsets", "pad", "list"])
def test_a_null_inside_a_list_names_its_record(
    tmp_path: Path, values: Any, type_: Any, record: int, ragged: str
) -> None:
    ds = tokens(tmp_path, values, type_)
    with pytest.raises(ps.SchemaError, match="missing") as caught:
        list(ps.Loader(ds, len(values), ragged=ragged))
    assert caught.value.record == record


def test_a_null_inside_a_tensor_names_its_record(tmp_path: Path) -> None:
    kind = pa.fixed_shape_tensor(pa.int64(), [2, 2])
    storage = pa.array([[1, 2, 3, 4], [5, 6, None, 8]], kind.storage_type)
    ds = streamed(
        tmp_path / "a.arrows",
        pa.record_batch({"x": pa.ExtensionArray.from_storage(kind, storage)}),
    )
    with pytest.raises(ps.SchemaError) as caught:
        list(ps.Loader(ds, 2))
    assert caught.value.record == 1
    assert np.array_equal(next(iter(ps.Loader(ds, 2, fill={"x": 0})))["x"][1], [[5, 6], [0, 8]])
