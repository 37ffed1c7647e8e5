"""Overlays: writing, listing and removing them, and how they appear in a dataset."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from overlaying import COUNT, file_of_ids, folder_of, keep, path_of
from penstock.verbs.fields.overlays import write_overlay
from reading import index_of


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of COUNT records."""
    return file_of_ids(tmp_path)


# -- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, COUNT - 1, COUNT + 1])
def test_a_wrong_number_of_values_is_an_error_that_leaves_nothing(path: str, count: int) -> None:
    before = sorted(os.listdir(os.path.dirname(path)))
    batch = pa.record_batch({"score": np.arange(count)})
    with pytest.raises(ps.SchemaError, match="one value is needed for each record"):
        write_overlay(ps.open(path), "new", batch.schema, lambda shard: [batch])
    assert sorted(os.listdir(os.path.dirname(path))) == before


def test_values_that_fail_half_way_leave_no_shard_with_them(tmp_path: Path) -> None:
    ps.write({"id": range(30)}, tmp_path / "a.tfrecord", num_shards=3)
    before = sorted(os.listdir(tmp_path))
    batch = pa.record_batch({"score": range(10)})

    def columns_of_shard(shard: int) -> list[pa.RecordBatch]:
        if shard == 2:
            raise RuntimeError("no more")
        return [batch]

    with pytest.raises(RuntimeError, match="no more"):
        write_overlay(ps.open(tmp_path), "new", batch.schema, columns_of_shard)
    assert sorted(os.listdir(tmp_path)) == before
    assert ps.overlays(tmp_path) == []


def test_batches_that_do_not_fit_are_errors(path: str) -> None:
    schema = pa.schema([("score", pa.int8())])
    for wrong in ({"other": [1]}, {"score": [1000]}, {"score": ["x"]}):
        batch = pa.record_batch(wrong)
        with pytest.raises(ps.SchemaError):
            write_overlay(ps.open(path), "new", schema, lambda shard, b=batch: [b])
    for fields in ([], [("a", pa.int8()), ("a", pa.int8())]):
        with pytest.raises(ps.SchemaError):
            write_overlay(ps.open(path), "new", pa.schema(fields), lambda shard: [])
    assert ps.overlays(path) == []


def test_an_overlay_is_replaced_only_on_request(path: str) -> None:
    keep(path, score=np.arange(COUNT))
    with pytest.raises(FileExistsError, match="overwrite=True"):
        keep(path, score=np.arange(COUNT) * 2)
    assert ps.open(path)[7]["score"] == 7
    keep(path, score=np.arange(COUNT))  # the values are the same, so nothing is written
    keep(path, overwrite=True, other=np.arange(COUNT) * 2)
    assert ps.open(path)[7] == {"id": 7, "other": 14}


def test_the_same_call_finishes_what_was_interrupted(tmp_path: Path) -> None:
    ps.write({"id": range(30)}, tmp_path / "a.tfrecord", num_shards=3)
    for missing in ([0], [1, 2], [0, 1, 2]):
        keep(ps.open(tmp_path), score=np.arange(30))
        paths = ps.open(tmp_path).paths
        kept = Path(path_of(paths[1], "new")).read_bytes()
        for shard in missing:
            ps.remove_overlay(paths[shard], "new")
        assert len(ps.overlays(tmp_path)) == (len(missing) < 3)
        keep(ps.open(tmp_path), score=np.arange(30))
        assert ps.open(tmp_path).take(range(30)).column("score").to_pylist() == list(range(30))
        assert Path(path_of(paths[1], "new")).read_bytes() == kept
        assert len(ps.overlays(tmp_path)[0].shards) == 3


def test_names_that_no_file_could_have_are_names_of_overlays(path: str) -> None:
    names = ["a/b", "../x", ".hidden", "ünïcode", "a b", "%41", "A", "\n", "x.overlay"]
    for number, name in enumerate(names):
        keep(path, name, **{f"f{number}": np.full(COUNT, number)})
    assert [overlay.name for overlay in ps.overlays(path)] == names
    assert sorted(os.listdir(os.path.dirname(path))) == sorted(
        [os.path.basename(name) for name in (path, str(index_of(path)), folder_of(path))]
    )
    for name in names:
        ps.remove_overlay(path, name)
    assert ps.overlays(path) == []
    with pytest.raises(ValueError, match="needs a name"):
        keep(path, "", score=np.arange(COUNT))


# -- what is seen of them -------------------------------------------------------------------------


def test_later_overlays_win_and_each_can_be_removed(path: str) -> None:
    keep(path, "b", score=np.arange(COUNT), first=np.zeros(COUNT))
    keep(path, "a", score=np.arange(COUNT) * 10)
    keep(path, "c", id=np.arange(COUNT) + 5)
    assert [overlay.name for overlay in ps.overlays(path)] == ["b", "a", "c"]
    assert ps.open(path)[3] == {"id": 8, "score": 30, "first": 0.0}
    assert ps.open(path).schema.names == ["id", "score", "first"]
    ps.remove_overlay(path, "a")
    assert ps.open(path)[3] == {"id": 8, "score": 3, "first": 0.0}
    ps.remove_overlay(path, "c")
    keep(path, "a", score=np.arange(COUNT) * 100)
    assert ps.open(path)[3] == {"id": 3, "score": 300, "first": 0.0}
    assert [overlay.sequence for overlay in ps.overlays(path)] == [1, 2]


def test_listed_overlays_name_the_files_that_have_them(tmp_path: Path) -> None:
    ps.write({"id": range(30)}, tmp_path / "a.tfrecord", num_shards=3)
    paths = ps.open(tmp_path).paths
    made = keep(paths[1], score=np.arange(10), word=["w"] * 10)
    (found,) = ps.overlays(tmp_path)
    assert found == ps.OverlayInfo(
        "new",
        1,
        pa.schema([("score", pa.int64()), ("word", pa.string())]),
        (paths[1],),
        3,
        made.num_bytes,
    )
    assert ps.overlays(ps.open(tmp_path)) == [found]
    with pytest.raises(ValueError, match="there are: new"):
        ps.remove_overlay(tmp_path, "old")
    assert ps.remove_overlay(tmp_path, "new") == list(made.paths)


def test_types_that_differ_between_shards_are_an_error(tmp_path: Path) -> None:
    ps.write({"id": range(30)}, tmp_path / "a.tfrecord", num_shards=3)
    paths = ps.open(tmp_path).paths
    keep(paths[0], score=np.arange(10))
    keep(paths[2], score=["x"] * 10)
    with pytest.raises(ps.SchemaError, match="a different type") as raised:
        ps.open(tmp_path)
    assert raised.value.field == "score"
    assert folder_of(paths[2]) in str(raised.value)
    assert ps.open(tmp_path, overlays=False)[0] == {"id": 0}
    ps.remove_overlay(paths[2], "new")
    keep(paths[2], id=["x"] * 10)
    with pytest.raises(ps.SchemaError):
        list(ps.open(tmp_path).scan())


def test_every_verb_shows_the_fields(path: str, tmp_path: Path) -> None:
    keep(path, score=np.arange(COUNT) * 2, word=["w"] * COUNT)
    assert ps.info(path).schema.names == ["id", "score", "word"]
    stats = {field.name: field for field in ps.stats(path).fields}
    assert stats["score"].values is not None
    assert stats["score"].values.max == 2 * (COUNT - 1)
    for name in ("b.parquet", "b.arrow", "b.tfrecord"):
        ps.convert(path, tmp_path / name)
        assert ps.open(tmp_path / name)[9] == ps.open(path)[9] | {"word": "w"}
        assert not ps.overlays(tmp_path / name)
    assert ps.verify(path).ok
    raw = ps.open(path, raw=True)
    assert raw.schema.names == ["record"]
    assert raw.take([0]).num_columns == 1


def test_a_feature_description_chooses_fields_of_overlays(path: str) -> None:
    keep(path, score=np.arange(COUNT) * 2, other=np.arange(COUNT))
    asked = {"score": ps.features.FixedLen([], "int64"), "id": ps.features.FixedLen([], "int64")}
    dataset = ps.open(path, schema=asked)
    assert dataset[4] == {"score": 8, "id": 4}
    assert dataset.schema.names == ["score", "id"]
    alone = ps.open(path, schema={"score": asked["score"]})
    assert alone.take([5, 4]).to_pydict() == {"score": [10, 8]}
    assert next(alone.scan()).column("score").to_pylist()[:3] == [0, 2, 4]


def test_a_field_that_may_not_be_null_must_be_in_every_shard(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        ps.write({"id": range(10)}, tmp_path / name)
    keep(str(tmp_path / "a.parquet"), score=np.arange(10))
    fields = [pa.field("score", pa.int64(), nullable=False), pa.field("id", pa.int64())]
    dataset = ps.open(tmp_path, schema=pa.schema(fields))
    with pytest.raises(ps.SchemaError, match="allows no nulls") as raised:
        list(dataset.scan())
    assert raised.value.field == "score"


def test_a_file_that_is_twice_in_a_dataset_gets_no_overlay(path: str) -> None:
    with pytest.raises(ValueError, match="contains a file twice"):
        keep(ps.open([path, path]), score=np.arange(2 * COUNT))
    keep(path, score=np.arange(COUNT))
    assert ps.open([path, path])[COUNT + 3] == {"id": 3, "score": 3}


def test_verify_writes_no_index_to_read_overlays(path: str) -> None:
    keep(path, score=np.arange(COUNT))
    os.unlink(str(index_of(path)))
    assert ps.verify(path).ok
    assert not os.path.exists(str(index_of(path)))
    overwritten = Path(path).read_bytes()
    ps.write({"id": range(1, COUNT + 1)}, path, overwrite=True, index=False)
    assert [finding.kind for finding in ps.verify(path).findings] == ["stale_overlay"]
    Path(path).write_bytes(overwritten)
    assert ps.verify(path).ok


def test_only_the_asked_fields_of_an_overlay_read_no_records(tmp_path: Path) -> None:
    """If only fields of overlays are selected, they can be read although no payload of the shard can."""
    path = tmp_path / "a.tfrecord"
    ps.write({"id": range(100), "text": ["x" * 1000] * 100}, path)
    keep(str(path), score=np.arange(100))
    data = bytearray(path.read_bytes())
    data[30_000:30_100] = bytes(100)
    path.write_bytes(data)
    dataset = ps.open(path, columns=["score"])
    assert [v for b in dataset.scan() for v in b.column(0).to_pylist()] == list(range(100))
    assert dataset.take(range(100)).column(0).to_pylist() == list(range(100))
    with pytest.raises(ps.ChecksumError):
        list(ps.open(path).scan())
    skipping = ps.open(path, columns=["score"], damage="skip")
    whole = [v for b in skipping.scan() for v in b.column(0).to_pylist()]
    assert len(whole) < 100
    assert whole == [row["id"] for row in ps.open(path, damage="skip")]
