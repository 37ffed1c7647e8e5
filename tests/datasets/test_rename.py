"""`ds.rename`: a view whose columns have other names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.datasets.dataset import Dataset

COUNT = 60
NAMES = ["id", "score", "text"]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("rename")
    table = pa.table(
        {
            "id": np.arange(COUNT),
            "score": pa.array(np.arange(COUNT) / 4, pa.float32()),
            "text": pa.array([f"t{n % 7}".encode() for n in range(COUNT)]),
        }
    )
    for name in ("a.tfrecord", "a.tfrecord.gz", "a.arrow", "a.tar"):
        ps.write(table, folder / name)
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    for year in (2023, 2024):
        (folder / f"hive/year={year}").mkdir(parents=True)
        part = table.slice((year - 2023) * 30, 30).drop_columns(["score"])
        pq.write_table(part, folder / f"hive/year={year}/a.parquet")
    over = folder / "over.tfrecord"
    ps.write(table.drop_columns(["score"]), over)
    ps.add_fields(over, {"score": table["score"]})
    types = {"text": "binary"}
    return {
        "tfrecord": ps.open(folder / "a.tfrecord"),
        "gzip": ps.open(folder / "a.tfrecord.gz"),
        "skip": ps.open(folder / "a.tfrecord", damage="skip"),
        "arrow": ps.open(folder / "a.arrow"),
        "tar": ps.open(folder / "a.tar", types=types).select(NAMES),
        "parquet": ps.open(folder / "a.parquet"),
        "hive": ps.open(str(folder / "hive"), hive=True).rename({"year": "score"}).select(NAMES),
        "overlay": ps.open(over).select(NAMES),
    }


KINDS = ("tfrecord", "gzip", "skip", "arrow", "tar", "parquet", "hive", "overlay")
renames = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from([*NAMES, "x", "y", "a.b"]), max_size=3
).filter(lambda names: len({names.get(name, name) for name in NAMES}) == 3)


@given(kind=st.sampled_from(KINDS), names=renames, drawn=st.data())
def test_a_renamed_view_has_the_same_values_under_other_names(
    sets: dict[str, Dataset], kind: str, names: dict[str, str], drawn: st.DataObject
) -> None:
    plain = sets[kind]
    view = plain.rename(names)
    if drawn.draw(st.booleans()):
        view = pickle.loads(pickle.dumps(view))
    new = [names.get(name, name) for name in NAMES]
    expected = plain.to_table().rename_columns(new)
    assert view.schema.names == new
    assert view.to_table().equals(expected) and len(view) == COUNT
    columns = drawn.draw(st.lists(st.sampled_from(new), unique=True, min_size=1))
    some = view.select(columns)
    assert some.to_table().equals(expected.select(columns))
    numbers = drawn.draw(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=8))
    assert some.take(numbers).equals(expected.select(columns).take(numbers).to_batches()[0])
    least = drawn.draw(st.integers(0, COUNT))
    chosen = view.filter(f"`{names.get('id', 'id')}` >= {least}")
    assert chosen.to_table().equals(expected.slice(least))
    assert chosen.select(columns).to_table().equals(expected.slice(least).select(columns))
    back = {new: old for old, new in names.items()}
    assert chosen.rename(back).to_table().equals(plain.to_table().slice(least))
    assert plain.filter(f"id >= {least}").rename(names).to_table().equals(expected.slice(least))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_reads_a_renamed_view(sets: dict[str, Dataset], kind: str) -> None:
    view = sets[kind].rename({"id": "score", "score": "id"})
    order = ps.Shuffled(seed=0)
    expected = list(ps.Loader(sets[kind], 16, order=order))
    for batch, other in zip(ps.Loader(view, 16, order=order), expected, strict=True):
        assert batch["score"].tolist() == other["id"].tolist()
        assert batch["id"].tolist() == other["score"].tolist()
    assert view.fingerprint != sets[kind].fingerprint


@pytest.mark.parametrize("target", ["b.tfrecord", "b.parquet", "b.tar"])
def test_verbs_write_the_new_names(sets: dict[str, Dataset], tmp_path: Path, target: str) -> None:
    view = sets["tfrecord"].rename({"id": "score", "score": "points"})
    ps.convert(view, tmp_path / target)
    assert ps.open(tmp_path / target).to_table(columns=["score"])["score"].to_pylist() == list(
        range(COUNT)
    )
    ps.convert(view, tmp_path / f"typed-{target}", types={"points": "float64"})
    ps.write(view.select(["score"]), tmp_path / f"copy-{target}")
    assert "points" in ps.open(tmp_path / f"typed-{target}").schema.names
    assert ps.diff(view, ps.open(tmp_path / target), columns=["score"]).equal
    assert view.lazy().collect()["score"].to_list() == list(range(COUNT))
    assert view.to_arrow_dataset().to_table()["score"].to_pylist() == list(range(COUNT))
    parts = ps.split(view, {"a": 0.5, "b": 0.5}, by="score")
    assert sorted(n for one in parts.values() for n in one.to_table()["score"].to_pylist()) == list(
        range(COUNT)
    )


def test_sources_with_other_names_are_mixed(tmp_path: Path) -> None:
    ps.write({"img": [1, 2, 3], "y": [0, 1, 0], "url": [b"a"] * 3}, tmp_path / "a.tfrecord")
    ps.write({"image": [4, 5, 6], "label": [1, 1, 1]}, tmp_path / "b.parquet")
    first, second = ps.open(tmp_path / "a.tfrecord"), ps.open(tmp_path / "b.parquet")
    order = ps.Mixture({"a": 0.5, "b": 0.5}, seed=0)
    with pytest.raises(ps.SchemaError) as caught:
        ps.Loader({"a": first, "b": second}, 3, order=order)
    assert "img (not in b), y (not in b), url (not in b), image (not in a)" in str(caught.value)
    first = first.rename({"img": "image", "y": "label"})
    with pytest.raises(ps.SchemaError, match=r"url \(not in b\)") as caught:
        ps.Loader({"a": first, "b": second}, 3, order=order)
    assert "columns=['image', 'label']" in str(caught.value)
    sets = {"a": first, "b": second}
    loader = ps.Loader(sets, 3, order=order, columns=["image", "label"])
    assert sorted(n for batch in loader for n in batch["image"].tolist()) == [1, 2, 3, 4, 5, 6]
    listed = ps.Loader([first.select(["label", "image"]), second], 6)
    assert next(iter(listed))["image"].tolist() == [1, 2, 3, 4, 5, 6]


def test_datasets_of_a_loader_need_the_same_columns(tmp_path: Path) -> None:
    ps.write({"id": [1], "url": [b"x"]}, tmp_path / "a.tfrecord")
    ps.write({"id": [2]}, tmp_path / "b.tfrecord")
    sets = [ps.open(tmp_path / "a.tfrecord"), ps.open(tmp_path / "b.tfrecord")]
    for data in (sets, sets[::-1]):
        with pytest.raises(ps.SchemaError, match=r"url \(not in .*b.tfrecord\)"):
            ps.Loader(data, 2)
    with pytest.raises(ps.SchemaError, match="no such column") as caught:
        ps.Loader(sets, 2, columns=["url"])
    assert caught.value.file == str(tmp_path / "b.tfrecord")


def test_class_names_follow_the_new_names(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        image = ps.encode_images(np.zeros((1, 8, 8, 3), np.uint8), "png")[0].as_py()
        data = image if isinstance(image, bytes) else image["bytes"]
        (tmp_path / "pets" / name / "1.png").write_bytes(data)
    loader = ps.Loader(ps.open(tmp_path / "pets").rename({"label": "kind"}), 2, columns=["kind"])
    assert loader.class_names == {"kind": ["cat", "dog"]}
    assert next(iter(loader))["kind"].tolist() == [0, 1]


def test_lengths_in_the_index_are_those_of_the_stored_column(tmp_path: Path) -> None:
    ps.write({"a": [[1], [1, 2]], "b": [[1, 2, 3], [1]]}, tmp_path / "two.tfrecord")
    ds = ps.open(tmp_path / "two.tfrecord")
    buckets: Any = {"a": [1, 2, 3]}
    ps.Loader(ds, 1, buckets=buckets)  # keeps the lengths
    swapped = ps.Loader(ds.rename({"a": "b", "b": "a"}), 1, buckets=buckets)
    assert sorted(batch["a"].shape[1] for batch in swapped) == [1, 3]


def test_wrong_renames_are_refused(sets: dict[str, Dataset]) -> None:
    ds = sets["tfrecord"]
    with pytest.raises(ps.SchemaError, match="no such column; there are: id, score, text"):
        ds.rename({"img": "image"})
    with pytest.raises(ps.SchemaError, match="'id' and 'score' would have the same name"):
        ds.rename({"id": "score"})
    assert ds.select(["id"]).rename({"id": "score"}).schema.names == ["score"]
    for wrong in ([("id", "x")], {"id": 3}):
        with pytest.raises(TypeError, match="rename takes a dict"):
            ds.rename(wrong)  # type: ignore[arg-type]
    with pytest.raises(ps.UnsupportedError, match="a view"):
        ps.add_fields(ds.rename({"id": "x"}), {"new": np.zeros(COUNT)})
