"""Hints about views, and about batches of records of similar length."""

from __future__ import annotations

import gzip
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
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


def a_column_of_unknown_type() -> Case:
    ps.write({"meta": ['{"x": 1}'] * 3}, "a.tfrecord", index=False)
    ds = ps.open("a.tfrecord", types={"meta": "json"})

    def advised() -> None:
        assert ds.with_columns({"y": 'cast(meta.y, "string")'})[2]["y"] is None

    return Case(lambda: ds.with_columns({"y": "meta.y"}), advised)


def ids(data: Any) -> list[int]:
    return [record["id"] for record in data]


def tasks_of_rows() -> Case:
    ds = written()
    rows = ps.packed(ds, "tokens", 7)

    def advised() -> None:
        (task,) = ds.tasks()
        assert sum(len(each) for b in task.batches() for each in b["tokens"].to_pylist()) == 21
        ps.write(rows, "rows.parquet")
        (task,) = ps.open("rows.parquet").tasks()
        assert task.num_records == len(rows) == 3

    return Case(rows.tasks, advised)


def a_condition_without_a_name() -> Case:
    ds = written()

    def fails() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "cloudpickle", None)
            for name in [name for name in sys.modules if name.endswith(".cloudpickle")]:
                patch.delitem(sys.modules, name)
            pickle.dumps(ds.filter(lambda batch: pc.greater(batch["id"], 2)))

    def advised() -> None:
        for where in ("id >= 3", is_wanted, lambda batch: pc.greater(batch["id"], 2)):
            (task,) = pickle.loads(pickle.dumps(ds.filter(where).tasks()))
            assert [n for batch in task.batches() for n in batch["id"].to_pylist()] == WANTED

    return Case(fails, advised)


def is_wanted(batch: pa.RecordBatch) -> Any:
    return pc.greater(batch["id"], 2)


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


def longer_than_all_buckets() -> Case:
    data, few = written(), {"tokens": [3]}

    def advised() -> None:
        assert seen(bucketed(data, buckets={"tokens": [3, 6]})) == list(range(6))
        assert seen(bucketed(data, buckets=few, truncate=True)) == list(range(6))

    return Case(lambda: bucketed(data, buckets=few), advised, "a bucket of 6, or truncate=True")


def documents_longer_than_a_row() -> Case:
    data = written()

    def whole(length: int, ds: ps.Dataset = data) -> ps.Dataset:
        return ps.packed(ds, "tokens", length, eos=2, split=False)

    def advised() -> None:
        assert len(whole(7)) == 4
        assert len(ps.packed(data, "tokens", 4, eos=2)) == 7
        assert len(whole(4, data.filter("len(tokens) <= 3"))) == 3

    hint = "length=7, split=True, or ds.filter('len(tokens) <= 3')"
    return Case(lambda: whole(4), advised, hint)


def documents_in_a_column_that_is_added() -> Case:
    ps.write({"document": [[1, 2], [3]]}, "a.tfrecord")

    def advised() -> None:
        ps.rename_fields("a.tfrecord", {"document": "tokens"})
        assert ps.packed(ps.open("a.tfrecord"), "tokens", 3)[0]["tokens"] == [1, 2, 3]

    return Case(lambda: ps.packed(ps.open("a.tfrecord"), "document", 3), advised)


def a_mask_of_the_data() -> Case:
    ps.write({"mask": [1, 2, 3]}, "a.tfrecord")

    def loader() -> ps.Loader:
        return ps.Loader(ps.open("a.tfrecord"), 2, uneven="pad")

    def advised() -> None:
        ps.rename_fields("a.tfrecord", {"mask": "pixels"})
        assert [batch["mask"].tolist() for batch in loader()] == [[True, True], [True, False]]

    return Case(loader, advised)


def columns_that_pad_adds() -> Case:
    ps.write({"a": [[1, 2], [3]], "a_mask": [1, 2]}, "a.tfrecord")

    def batch(pad: ps.Pad) -> dict[str, Any]:
        return next(iter(ps.Loader(ps.open("a.tfrecord"), 2, pad_to={"a": pad})))

    def advised() -> None:
        assert batch(ps.Pad(lengths=True))["a_length"].tolist() == [2, 1]
        ps.rename_fields("a.tfrecord", {"a_mask": "pixels"})
        assert batch(ps.Pad(mask=True))["a_mask"].tolist() == [[True, True], [True, False]]

    return Case(lambda: batch(ps.Pad(mask=True)), advised)


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


def lists_of_other_lengths() -> Case:
    ps.write({"tokens": [[1, 2], [3, 4]], "loss_mask": [[0], [0, 1]]}, "a.parquet")
    ds = ps.open("a.parquet")

    def packed(ds: ps.Dataset) -> ps.Dataset:
        return ps.packed(ds, ["tokens", "loss_mask"], 2)

    def advised() -> None:
        assert packed(ds.filter("len(loss_mask) == len(tokens)"))[0]["loss_mask"] == [0, 1]

    return Case(lambda: packed(ds), advised, "ds.filter('len(loss_mask) == len(tokens)')")


def a_token_that_is_missing() -> Case:
    ps.write({"tokens": [[1], [2, None], None, [3]]}, "a.parquet")
    ds = ps.open("a.parquet")

    def advised() -> None:
        whole = ds.filter(
            lambda batch: [None not in (one or []) for one in batch["tokens"].to_pylist()]
        )
        assert ps.packed(whole, "tokens", 2)[0]["tokens"] == [1, 3]

    return Case(
        lambda: ps.packed(ds, "tokens", 2).to_table(),
        advised,
        "ds.filter(lambda batch: [None not in (one or []) for one in batch['tokens'].to_pylist()])"
        " leaves such documents out",
    )


def padding_that(value: int, stored: pa.DataType, needs: str) -> Case:
    ps.write({"tokens": pa.array([[1, 2], [3]], pa.list_(stored))}, "a.arrow")

    def padded(**types: Any) -> Any:
        pads = {"tokens": ps.Pad(2, value=value)}
        return next(iter(ps.Loader(ps.open("a.arrow", **types), 2, pad_to=pads)))["tokens"]

    def advised() -> None:
        assert padded(types={"tokens": needs}).tolist() == [[1, 2], [3, value]]

    return Case(padded, advised, f'open(..., types={{"tokens": "{needs}"}})')


def negative_padding() -> Case:
    return padding_that(-100, pa.uint16(), "int32")


def negative_padding_of_uint32() -> Case:
    return padding_that(-100, pa.uint32(), "int64")


def a_record_that_is_cut_off() -> Case:
    written()
    Path("a.tfrecord").write_bytes(Path("a.tfrecord").read_bytes()[:-7])

    def loop(**options: Any) -> list[int]:
        loader = ps.Loader(ps.open("a.tfrecord", **options), 6)
        return [number for batch in loader for number in batch["id"].tolist()]

    def advised() -> None:
        assert loop(damage="skip") == [0, 1, 2, 3, 4]

    return Case(
        loop,
        advised,
        'penstock verify a.tfrecord; or open(..., damage="skip"), to skip damaged records',
    )


def a_record_with_a_wrong_bit() -> Case:
    damaged()

    def loop(**options: Any) -> list[int]:
        loader = ps.Loader(ps.open("a.tfrecord", **options), 6)
        return [number for batch in loader for number in batch["id"].tolist()]

    def advised() -> None:
        assert loop(damage="skip") == [1, 2, 3, 4, 5]

    return Case(
        loop,
        advised,
        'penstock verify a.tfrecord; or open(..., damage="skip"), to skip damaged records',
    )


CASES: Cases = {
    "f'cast({expression.text}, \"string\"), or another type'": a_column_of_unknown_type,
    "'open(..., damage=\"skip\"), which reads on after the damage'": numbers_of_a_filtered_view,
    "command('penstock', 'repair', dataset.paths[shard], '--into', 'NEW')": records_without_numbers,
    "'penstock.convert writes the view as files of its own'": fields_of_a_view,
    "'make tasks of the documents and pack those of each task; or penstock.write the rows, and make tasks of the new files'": (
        tasks_of_rows
    ),
    "'a text such as \"label == 3\", or a function of a module, or pip install cloudpickle'": (
        a_condition_without_a_name
    ),
    "'another name, or select without one of them'": (
        a_name_that_is_taken,
        a_name_that_was_left_out,
    ),
    """f'columns={shared}, which all of them have, or ds.rename for one with two names' if shared else 'ds.rename({"old": "new"}), so that they have the same columns'""": (
        sets_without_a_common_column,
        sets_of_which_one_has_more,
        sets_with_two_names,
    ),
    "f\"length={longest}, split=True, or ds.filter('len({self.column}) <= {most}')\"": (
        documents_longer_than_a_row
    ),
    "f\"ds.filter('len({name}) == len({self.column})')\"": lists_of_other_lengths,
    "f'ds.filter({has_all}) leaves such documents out'": a_token_that_is_missing,
    "_fitting(value, place)": (negative_padding, negative_padding_of_uint32),
    "f'{checked}open(..., damage=\"skip\"), to skip damaged records'": (
        a_record_that_is_cut_off,
        a_record_with_a_wrong_bit,
    ),
    "'penstock.rename_fields gives the column another name, such as \"tokens\"'": (
        documents_in_a_column_that_is_added
    ),
    "'penstock.rename_fields gives the column of the data another name'": a_mask_of_the_data,
    "'penstock.rename_fields, or mask=False and lengths=False of Pad'": columns_that_pad_adds,
    "f'a bucket of {int(lengths.max())}, or truncate=True'": longer_than_all_buckets,
}
