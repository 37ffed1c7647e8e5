"""Hints about the columns of a loader, and about new fields."""

from __future__ import annotations

import io
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet
from steps import Case, Cases, apart, rows

import datasets
import penstock as ps

# -- batches --------------------------------------------------------------------------------------


def batches(source: Any = "a.arrow", size: int = 2, **options: Any) -> list[dict[str, Any]]:
    return list(ps.Loader(ps.open(source), size, **options))


def positions() -> Case:
    order = ps.Shuffled(seed=1)

    def advised() -> None:
        stop = order.length(10)
        taken = [order.take(10, 0, 0, stop), *(order.take(10, 0, n, n + 5) for n in (0, 5))]
        assert sorted(taken[0]) == list(range(10))
        assert taken[0].tolist() == np.concatenate(taken[1:]).tolist()
        assert not len(order.take(10, 0, stop, stop))

    return Case(lambda: order.take(10, 0, 5, 11), advised)


def missing_number() -> Case:
    ps.write({"a": [1, None]}, "a.parquet")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, **options)
        return batch["a"].tolist()

    def filled() -> None:
        assert load(fill={"a": 0}) == [1, 0]

    return Case(load, filled, "columns= without it, or fill={'a': 0}")


def missing_truth() -> Case:
    ps.write({"objects": [{"crowd": [True]}, {"crowd": [None, True]}]}, "a.parquet")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, ragged="list", **options)
        return [one.tolist() for one in batch["objects"]["crowd"]]

    def filled() -> None:
        assert load(fill={"objects.crowd": False}) == [[True], [False, True]]

    return Case(load, filled, "columns= without it, or fill={'objects.crowd': False}")


def unfit_number() -> Case:
    ps.write({"age": [1, None]}, "a.parquet")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, **options)
        return batch["age"].tolist()

    def filled() -> None:
        assert load(fill={"age": 0}) == [1, 0]

    return Case(lambda: load(fill={"age": -0.5}), filled, "fill={'age': 0}")


def unfit_field() -> Case:
    ps.write({"object": [{"crowd": True}, {"crowd": None}]}, "a.parquet")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, **options)
        return batch["object"]["crowd"].tolist()

    def filled() -> None:
        assert load(fill={"object.crowd": False}) == [True, False]

    return Case(lambda: load(fill={"object": 0}), filled, "fill={'object.crowd': False}")


def missing_number_left_out() -> Case:
    ps.write({"objects": [{"score": 1.0}, {"score": None}], "id": [3, 4]}, "a.parquet")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 2, **options)
        return batch["id"].tolist()

    def left_out() -> None:
        assert load(columns=["id"]) == [3, 4]

    return Case(load, left_out, "columns= without it, or fill={'objects.score': 0}")


def missing_label() -> Case:
    labels = pa.array(["cat", None, "dog"]).dictionary_encode()
    ps.write({"label": labels}, "a.parquet")

    def load(**options: Any) -> Any:
        (batch,) = ps.Loader(ps.open("a.parquet"), 3, **options)
        return batch["label"].tolist()

    def filled() -> None:
        assert load(fill={"label": -1}) == [0, -1, 1]

    return Case(load, filled, "columns= without it, or fill={'label': -1}")


def long_list() -> Case:
    ps.write({"a": [[1], [2, 3, 4]]}, "a.arrow")
    how: dict[str, Any] = {"ragged": "pad", "pad_to": {"a": 2}}

    def advised() -> None:
        (batch,) = batches(**{**how, "pad_to": {"a": 3}})
        assert batch["a"].tolist() == [[1, 0, 0], [2, 3, 4]]
        (batch,) = batches(**how, truncate=True)
        assert batch["a"].tolist() == [[1, 0], [2, 3]]

    return Case(lambda: batches(**how), advised)


def no_value() -> Case:
    days = pa.array([date.max.toordinal()], pa.int32()).cast(pa.date32())
    maps = pa.MapArray.from_arrays([0, 1], pa.array(["day"]), days)
    ps.write(pa.table({"a": maps, "b": [7]}), "a.arrow")

    def advised() -> None:
        (batch,) = batches(columns=["b"])
        assert {name: values.tolist() for name, values in batch.items()} == {"b": [7]}

    return Case(batches, advised)


def two_of_one_name() -> Case:
    batch = pa.record_batch([pa.array([n]) for n in (1, 2, 3)], ["a", "a", "b"])
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)

    def advised() -> None:
        (found,) = batches(columns=["b"])
        assert {name: values.tolist() for name, values in found.items()} == {"b": [3]}
        ps.write(batch.rename_columns(["p", "q", "b"]), "b.arrow")
        (found,) = batches("b.arrow")
        assert {name: values.item() for name, values in found.items()} == {"p": 1, "q": 2, "b": 3}

    return Case(batches, advised)


def labels_in_a_file() -> str:
    ps.write({"label": pa.array(["p", "q", "r"])}, "a.parquet")
    return "a.parquet"


def classes_in_another_order() -> Case:
    path = labels_in_a_file()

    def loader(*names: str) -> ps.Loader:
        return ps.Loader(ps.open(path), 3, class_names={"label": names})

    state = loader("p", "q", "r").state_dict()

    def advised() -> None:
        again = loader("p", "q", "r")
        again.load_state_dict(state)
        assert next(iter(again))["label"].tolist() == [0, 1, 2]

    return Case(
        lambda: loader("r", "q", "p").load_state_dict(state),
        advised,
        "class_names= of Loader, with the names in the order of the other loader",
    )


def classes_of_one_alone() -> Case:
    path = labels_in_a_file()
    state = ps.Loader(ps.open(path), 3).state_dict()

    def fails() -> None:
        names = {"label": ["p", "q", "r"]}
        ps.Loader(ps.open(path), 3, class_names=names).load_state_dict(state)

    def advised() -> None:
        again = ps.Loader(ps.open(path), 3)
        again.load_state_dict(state)
        assert next(iter(again))["label"].tolist() == ["p", "q", "r"]

    return Case(fails, advised, "leave class_names= out, as the other loader did")


def other_order() -> Case:
    ps.write({"a": range(6)}, "a.arrow")

    def loader(seed: int, epoch: int = 0) -> ps.Loader:
        return ps.Loader(ps.open("a.arrow"), 2, order=ps.Shuffled(seed=seed), epoch=epoch)

    def numbers(loader: ps.Loader) -> list[int]:
        return [number for batch in loader for number in batch["a"].tolist()]

    first = loader(1)
    wanted, steps = numbers(loader(1)), iter(first)
    next(steps)
    state = first.state_dict()

    def advised() -> None:
        again = loader(1)
        again.load_state_dict(state)
        assert numbers(again) == wanted[2:]
        whole = loader(2)
        assert numbers(whole) != numbers(whole) == numbers(loader(2, epoch=1))

    def fails() -> None:
        with pytest.raises(ps.StateError, match=r"Loader\(..., epoch=1\)$"):
            loader(2).load_state_dict({**state, "position": 0, "epoch": 1})
        with pytest.raises(ps.StateError, match=r"Loader\(..., epoch=1\)$"):
            loader(2).load_state_dict(state)
        loader(2).load_state_dict(state)

    return Case(fails, advised)


def numbers_for_images() -> Case:
    file = io.BytesIO()
    Image.new("RGB", (3, 2), (9, 8, 7)).save(file, "PNG")
    ps.write({"x": [5], "image": [file.getvalue()]}, "a.arrow")

    def advised() -> None:
        (batch,) = batches(decode={"image": ps.Image()})
        assert batch["image"].tolist() == [[[[9, 8, 7]] * 3] * 2]

    return Case(lambda: batches(decode={"x": ps.Image()}), advised)


def odd_tensor() -> Case:
    tensors = pa.FixedSizeListArray.from_arrays(np.arange(4, dtype=np.float32), 2)
    ps.write({"x": tensors, "y": [3, 4]}, "a.beton")
    data = Path("a.beton").read_bytes()
    assert data.count(b'"<f4"') == 1
    Path("a.beton").write_bytes(data.replace(b'"<f4"', b'"|V4"'))

    def advised() -> None:
        assert rows("a.beton", columns=["y"]) == [{"y": 3}, {"y": 4}]

    return Case(lambda: rows("a.beton"), advised)


TORCH = """
import penstock as ps
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

ps.write({"a": range(8)}, "a.arrow", overwrite=True)

def loader():
    return ps.Loader(ps.open("a.arrow"), 2, threads=1)

def numbers(batches):
    return [number for batch in batches for number in batch["a"].tolist()]

def fails():
    view = loader().torch()
    for _ in DataLoader(view, batch_size=None, num_workers=1):
        break
    view.state_dict()

def advised():
    view = loader().torch()
    for _ in DataLoader(view, batch_size=None, num_workers=0):
        break
    again = loader().torch()
    again.load_state_dict(view.state_dict())
    assert numbers(DataLoader(again, batch_size=None, num_workers=0)) == [2, 3, 4, 5, 6, 7]
    first = StatefulDataLoader(loader().torch(), batch_size=None, num_workers=1)
    for _ in first:
        break
    second = StatefulDataLoader(loader().torch(), batch_size=None, num_workers=1)
    second.load_state_dict(first.state_dict())
    assert numbers(second) == [2, 3, 4, 5, 6, 7]
"""


def place_of_workers() -> Case:
    return apart(TORCH)


JAX = """
import jax, numpy as np
import penstock as ps
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ps.write({"a": range(6)}, "a.arrow", overwrite=True)
FOUR = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))

def batches(size, **how):
    return list(ps.Loader(ps.open("a.arrow"), size, **how).jax(FOUR))

def numbers(batches):
    return [batch["a"].tolist() for batch in batches]

def advised():
    assert numbers(batches(4, drop_last=True)) == [[0, 1, 2, 3]]
    padded = batches(4, uneven="pad")
    assert [batch["a"][batch["mask"]].tolist() for batch in padded] == [[0, 1, 2, 3], [4, 5]]
    ps.write({"a": range(8)}, "a.arrow", overwrite=True)
    assert numbers(batches(8)) == [list(range(8))]

def fails():
    batches(SIZE)
"""


def last_batch_over_devices(size: int) -> Case:
    flag = "--xla_force_host_platform_device_count=4"
    return apart(f"SIZE = {size}\n{JAX}", XLA_FLAGS=flag, JAX_PLATFORMS="cpu")


def short_last_batch() -> Case:
    return last_batch_over_devices(4)


def uneven_batches() -> Case:
    return last_batch_over_devices(3)


# -- new fields -----------------------------------------------------------------------------------


def too_few_values() -> Case:
    ps.write({"id": [3, 1, 2]}, "a.tfrecord")
    table = pa.table({"id": [1, 2, 3, 4], "more": [10, 20, 30, 40]})

    def advised() -> None:
        ps.add_fields("a.tfrecord", table, by="id", into="b.tfrecord")
        found = [{"id": n, "more": 10 * n} for n in (3, 1, 2)]
        assert rows("b.tfrecord") == found

    return Case(
        lambda: ps.add_fields("a.tfrecord", table.select(["more"]), into="b.tfrecord"), advised
    )


def key_of_another_name() -> Case:
    ps.write({"id": [1, 2]}, "a.tfrecord")
    table = pa.table({"number": [2, 1], "more": [20, 10]})

    def advised() -> None:
        ps.add_fields("a.tfrecord", table, by={"id": "number"}, into="b.tfrecord")
        assert rows("b.tfrecord") == [{"id": 1, "more": 10}, {"id": 2, "more": 20}]

    return Case(lambda: ps.add_fields("a.tfrecord", table, by="id"), advised)


def key_beside_a_column() -> Case:
    ps.write({"id": [1, 2]}, "a.tfrecord")
    table = pa.table({"id": [7, 7], "number": [2, 1], "more": [20, 10]})

    def add(**options: Any) -> Any:
        ps.add_fields("a.tfrecord", table, by={"id": "number"}, into="b.tfrecord", **options)
        return rows("b.tfrecord")

    def advised() -> None:
        assert add(columns=["more"]) == [{"id": 1, "more": 10}, {"id": 2, "more": 20}]

    return Case(add, advised)


def key_without_a_row() -> Case:
    ps.write({"id": [1, 2]}, "a.tfrecord")
    table = pa.table({"id": [2], "more": [20]})

    def add(**options: Any) -> Any:
        ps.add_fields("a.tfrecord", table, by="id", into="b.tfrecord", **options)
        return rows("b.tfrecord")

    def advised() -> None:
        assert add(missing="null") == [{"id": 1, "more": None}, {"id": 2, "more": 20}]

    return Case(add, advised)


def function_of_nothing() -> Case:
    ps.write({"id": range(40)}, "a.tfrecord")

    def late(batch: pa.RecordBatch) -> list[int | None]:
        return [number if number > 20 else None for number in batch.column("id").to_pylist()]

    def typed(batch: pa.RecordBatch) -> pa.Array:
        return pa.array(late(batch), pa.int64())

    def add(function: Any) -> None:
        ps.add_fields("a.tfrecord", {"more": function}, reads=["id"], into="b.tfrecord")

    def advised() -> None:
        add(typed)
        numbers = [record["more"] for record in rows("b.tfrecord")]
        assert numbers == [n if n > 20 else None for n in range(40)]

    return Case(lambda: add(late), advised)


def picture_by_its_path() -> Case:
    Image.new("RGB", (3, 2)).save("a.png")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([{"bytes": None, "path": "a.png"}], kind)
    parquet.write_table(pa.table({"image": images}), "a.parquet")

    def decoded(path: str) -> tuple[int, ...]:
        return ps.decode_images(ps.open(path).to_table()["image"])[0].shape

    def advised() -> None:
        ds = datasets.Dataset.from_parquet("a.parquet", cache_dir="cache")
        ds = ds.cast_column("image", datasets.Image())
        ds = ds.with_format("arrow").map(datasets.table.embed_table_storage, batched=True)
        ds.to_parquet("b.parquet")
        assert decoded("b.parquet") == (2, 3, 3)

    return Case(lambda: decoded("a.parquet"), advised)


CASES: Cases = {
    "'ds.with_format(\"arrow\").map(datasets.table.embed_table_storage, batched=True) puts the bytes of such files into a dataset of Hugging Face, which can then be saved again'": picture_by_its_path,
    "'0 <= start <= stop <= order.length(num_records)'": positions,
    "f'fill={{{path!r}: {(-1 if path in labels else usual(type_))!r}}}'": unfit_number,
    "f'fill={{{error.field!r}: {value!r}}}'": unfit_field,
    "f'columns= without it, or fill={{{error.field!r}: {value!r}}}'": (
        missing_number,
        missing_truth,
        missing_number_left_out,
        missing_label,
    ),
    "'a larger pad_to=, or truncate=True to shorten longer lists'": long_list,
    "'leave the column out: columns=[...]'": no_value,
    "'columns= without it, or other names'": two_of_one_name,
    "'class_names= of Loader, with the names in the order of the other loader' if stored else 'leave class_names= out, as the other loader did'": (
        classes_in_another_order,
        classes_of_one_alone,
    ),
    "f'make the loader as it was when the state was saved; or leave the state out and begin the next epoch with this one: Loader(..., epoch={epoch + bool(position)})'": (
        other_order
    ),
    "'name the column that holds them'": numbers_for_images,
    "'use columns= with the other fields'": odd_tensor,
    '"num_workers=0, because the loader has threads; or torchdata\'s StatefulDataLoader"': (
        place_of_workers
    ),
    'f\'drop_last=True or uneven="pad" of Loader for the last batch; uneven="pad" if damaged records are skipped; a map that returns a multiple of {each} records\'': (
        short_last_batch
    ),
    "f'a batch_size that is a multiple of {each}'": uneven_batches,
    "'by= joins a table by a key'": too_few_values,
    "\"by={'field': 'column'} joins by columns of two names\"": key_of_another_name,
    "'columns= names the columns to use'": key_beside_a_column,
    '\'missing="null" leaves the new fields out of such records; "keep", in replace_fields, leaves them their old values\'': key_without_a_row,
    "'return a pyarrow array with a type'": function_of_nothing,
}
