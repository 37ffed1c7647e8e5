"""Views: datasets with some of the records of other datasets, without a copy."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.datasets._chosen import ByNumber
from penstock.formats.parquet.format import ParquetReader

NUM = 1000
TABLE = pa.table(
    {
        "id": np.arange(NUM),
        "label": np.arange(NUM) % 10,
        "text": [f"text {number}".encode() for number in range(NUM)],
    }
)
WANTED = [number for number in range(NUM) if number % 10 == 3 and number >= 250]
WHERE = "label == 3 and id >= 250"
ENDINGS = ("tfrecord", "tfrecord.gz", "tar", "msgpack", "npz", "h5", "parquet", "arrow", "beton")


def opened(folder: Path, ending: str, **options: Any) -> ps.Dataset:
    made = ps.write(TABLE, folder / f"data-{{shard}}.{ending}", num_shards=3)
    return ps.open(list(made.paths), **options)


def ids(data: Any) -> list[int]:
    return data["id"].to_pylist()


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_filtered_view_has_the_records_of_the_condition(tmp_path: Path, ending: str) -> None:
    view = opened(tmp_path, ending).filter(WHERE)
    assert ids(view.to_table(["id"])) == WANTED
    assert view.count() == len(view) == len(WANTED)
    assert [view[n]["id"] for n in (0, 7, -1)] == [WANTED[n] for n in (0, 7, -1)]
    assert ids(view.take([5, 1, 5])) == [WANTED[n] for n in (5, 1, 5)]
    assert ids(view[2:60:7]) == WANTED[2:60:7]
    assert sum(shard.num_records for shard in view.shards) == len(WANTED)
    assert ids(view.select(["id"]).filter("id < 500").to_table()) == [n for n in WANTED if n < 500]


@pytest.mark.parametrize("ending", ENDINGS)
def test_verbs_and_loaders_take_views(tmp_path: Path, ending: str) -> None:
    view = opened(tmp_path, ending).filter(WHERE)
    for name in (f"again.{ending}", "other.parquet"):
        ps.convert(view, tmp_path / name)
        assert ids(ps.open(tmp_path / name).to_table(["id"])) == WANTED
    ps.write(view.select(["id"]), tmp_path / "written.arrow")
    assert ps.open(tmp_path / "written.arrow").to_table().to_pydict() == {"id": WANTED}
    assert ps.stats(view).num_records == len(WANTED)
    loader = ps.Loader(view, 16, order=ps.Shuffled(seed=1))
    seen = [number for batch in loader for number in batch["id"].tolist()]
    assert sorted(seen) == WANTED != seen


def test_all_ways_to_say_a_condition_give_the_same(tmp_path: Path) -> None:
    ds = opened(tmp_path, "tfrecord")
    expression = (pc.field("label") == 3) & (pc.field("id") >= 250)
    for where in (WHERE, expression, lambda batch: np.isin(batch["id"].to_numpy(), WANTED)):
        assert ids(ds.filter(where).to_table()) == WANTED
        assert ds.count(where) == len(WANTED)
        assert ids(ds.to_table(where=where, limit=4)) == WANTED[:4]


def test_head_and_to_table(tmp_path: Path) -> None:
    ds = opened(tmp_path, "tfrecord")
    assert ids(ds.head(3)) == [0, 1, 2]
    assert ds.head(0).num_rows == 0
    assert ds.head(0).schema == ds.schema
    assert ds.head(10 * NUM).num_rows == NUM
    assert ds.to_table(["label"], limit=700).to_pydict() == {
        "label": TABLE["label"].to_pylist()[:700]
    }
    with pytest.raises(ValueError, match="limit"):
        ds.head(-1)


def test_a_column_that_was_not_selected_cannot_be_in_a_condition(tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="there are: id"):
        opened(tmp_path, "tfrecord").select(["id"]).filter("label == 3")


@pytest.mark.parametrize("where", [WHERE, pc.field("label") == 3])
def test_a_view_pickles(tmp_path: Path, where: Any) -> None:
    view = opened(tmp_path, "tfrecord").filter(where).select(["id"])
    other = pickle.loads(pickle.dumps(view))
    assert other.to_table() == view.to_table()
    assert other.schema.names == ["id"]
    assert other.fingerprint == view.fingerprint


def test_views_have_different_fingerprints(tmp_path: Path) -> None:
    ds = opened(tmp_path, "tfrecord")
    views = [ds, ds.filter("id < 10"), ds.filter("id > 10"), ds.filter("id < 11")]
    assert len({view.fingerprint for view in views}) == 4
    assert ds.filter("id < 10").fingerprint == ds.filter("id <= 9").fingerprint


def test_a_loader_over_a_view_resumes(tmp_path: Path) -> None:
    view = opened(tmp_path, "tfrecord").filter(WHERE)
    made = lambda: ps.Loader(view, 8, order=ps.Shuffled(seed=2))  # noqa: E731
    whole = [batch["id"].tolist() for batch in made()]
    loader = made()
    for _, batch in zip(range(4), loader, strict=False):
        assert batch["id"].tolist() in whole
    resumed = made()
    resumed.load_state_dict(loader.state_dict())
    assert [batch["id"].tolist() for batch in resumed] == whole[4:]


def test_a_view_has_its_overlays(tmp_path: Path) -> None:
    ds = opened(tmp_path, "tfrecord")
    ps.add_fields(ds, {"score": np.arange(NUM) / 10})
    view = ps.open(list(ds.paths)).filter("score >= 99 and label < 3")
    assert ids(view.to_table()) == [990, 991, 992]
    assert view[1]["score"] == 99.1


@pytest.mark.parametrize("verb", [ps.add_fields, ps.replace_fields, ps.rename_fields])
def test_verbs_on_files_refuse_a_view(tmp_path: Path, verb: Any) -> None:
    view = opened(tmp_path, "tfrecord").filter(WHERE)
    with pytest.raises(ps.UnsupportedError, match="a view of their records"):
        verb(view, {"id": "x"})


# -- damage -----------------------------------------------------------------------------------------


def damaged(folder: Path, record: int) -> str:
    """Return a TFRecord file in which one byte of a record's payload is wrong."""
    path = folder / "damaged.tfrecord"
    ps.write(TABLE, path, index=False)
    data = bytearray(path.read_bytes())
    start = 0
    for _ in range(record):
        start += 16 + int.from_bytes(data[start : start + 8], "little")
    data[start + 20] ^= 1
    path.write_bytes(bytes(data))
    return str(path)


@pytest.mark.parametrize("record", [3, 253, 993])
def test_an_error_in_a_view_names_the_record_of_the_file(tmp_path: Path, record: int) -> None:
    ds = ps.open(damaged(tmp_path, record))
    numbers = ByNumber.of(np.arange(3, NUM, 10), ds.files.firsts)
    for view in (ds.filter("label == 3"), ds.view(numbers)):
        found = []
        with pytest.raises(ps.ChecksumError) as caught:
            found += [number for batch in view.scan() for number in ids(batch)]
        assert caught.value.record == record


def test_damage_is_skipped_in_a_view(tmp_path: Path) -> None:
    path = damaged(tmp_path, 253)
    left = [number for number in range(3, NUM, 10) if number != 253]
    ds = ps.open(path, damage="skip")
    view = ds.filter("label == 3")
    assert [n for batch in view.scan() for n in ids(batch)] == left
    assert len(view.damage) == 1
    numbers = ds.view(ByNumber.of(np.arange(3, NUM, 10), ds.files.firsts))
    assert [n for batch in numbers.scan() for n in ids(batch)] == left
    assert [n for batch in ps.Loader(numbers, 8) for n in batch["id"].tolist()] == left
    ps.convert(view, tmp_path / "left.parquet")
    assert ids(ps.open(tmp_path / "left.parquet").to_table()) == left
    assert len(view) == len(left)
    assert ids(view.take(np.arange(len(left)))) == left
    assert len(view.damage) == 1


def test_damage_outside_a_view_by_number_does_not_matter(tmp_path: Path) -> None:
    ds = ps.open(damaged(tmp_path, 500))
    view = ds.view(ByNumber.of(np.arange(3, NUM, 10), ds.files.firsts))
    assert ids(view.take(np.arange(len(view)))) == list(range(3, NUM, 10))
    assert ids(view.to_table()) == list(range(3, NUM, 10))


# -- statistics of Parquet --------------------------------------------------------------------------


@pytest.fixture
def parquet(tmp_path: Path) -> ps.Dataset:
    table = pa.table(
        {
            "id": np.arange(10_000),
            "x": np.linspace(0, 1, 10_000),
            "name": [f"{number:06d}" for number in range(10_000)],
            "rare": [number if number % 1000 == 0 else None for number in range(10_000)],
        }
    )
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=100)
    return ps.open(tmp_path / "data.parquet")


@pytest.mark.parametrize(
    ("where", "num_records", "num_groups"),
    [
        ("id >= 9950", 50, 1),
        ("9950 <= id", 50, 1),
        ("id == 5 and x < 2", 1, 1),
        ('name == "000005"', 1, 1),
        ("id in [5, 150]", 2, 2),
        ("id < 150 and name > `name`", 0, 2),
        ("x > 0.995", 50, 1),
        ("id >= 9950 or id < 3", 53, 100),
        ("not id < 9950", 50, 100),
        ("rare == 3000", 1, 1),
        ("id > 100000", 0, 0),
        ("id == 9950.5", 0, 1),
    ],
)
def test_row_groups_are_skipped_by_their_statistics(
    parquet: ps.Dataset,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    num_records: int,
    num_groups: int,
) -> None:
    decoded: list[Any] = []
    before = ParquetReader._decoded
    monkeypatch.setattr(
        ParquetReader,
        "_decoded",
        lambda self, part, stored: decoded.append(part) or before(self, part, stored),
    )
    assert parquet.count(where) == num_records
    assert len(decoded) == num_groups


def test_a_function_reads_only_the_columns_that_are_named(tmp_path: Path) -> None:
    ds = opened(tmp_path, "parquet")
    seen: list[list[str]] = []

    def is_three(batch: pa.RecordBatch) -> np.ndarray:
        seen.append(batch.schema.names)
        return batch["label"].to_numpy() == 3

    wanted = ds.filter("label == 3").to_table(columns=["id"])
    view = ds.filter(is_three, reads=["label"])
    assert view.to_table(columns=["id"]) == wanted
    assert ds.to_table(columns=["id"], where=is_three, reads=["label"]) == wanted
    assert ds.count(is_three, reads=["label"]) == len(view) == len(wanted)
    assert set(map(tuple, seen)) == {("id", "label"), ("label",)}
    with pytest.raises(ps.SchemaError, match="no such column"):
        ds.filter(is_three, reads=["labels"])
    with pytest.raises(TypeError, match="list of names"):
        ds.filter(is_three, reads="label")
