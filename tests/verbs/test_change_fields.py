"""Fields of stored records are added, dropped, renamed and replaced through the public API."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is the oracle of these tests")

import penstock as ps  # noqa: E402
import strategies  # noqa: E402
from frames import HEAD  # noqa: E402
from reading import index_of  # noqa: E402

COMPRESSIONS: dict[str | None, str] = {None: "", "gzip": "GZIP", "zlib": "ZLIB"}


def examples(path: Path | str, compression: str | None = None) -> list[Any]:
    data = tf.data.TFRecordDataset(str(path), compression_type=COMPRESSIONS[compression])
    return [tf.train.Example.FromString(record.numpy()) for record in data]


def by_key(message: Any) -> dict[str, bytes]:
    items = message.features.feature.items()
    return {key: feature.SerializeToString(deterministic=True) for key, feature in items}


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """Three shards, with ten records together."""
    rows = {"id": np.arange(10), "text": [f"text {n}" for n in range(10)]}
    ps.write(rows, tmp_path / "a.tfrecord", num_shards=3)
    return tmp_path


def sources(folder: Path) -> str:
    return str(folder / "a-*.tfrecord")


@given(old=strategies.batches(), new=strategies.batches(min_records=20, max_records=20))
def test_tensorflow_reads_old_and_new_fields(old: pa.RecordBatch, new: pa.RecordBatch) -> None:
    new = new.slice(0, old.num_rows).rename_columns([f"new {n}" for n in new.schema.names])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ps.write(old, folder / "old.tfrecord")
        ps.write(new, folder / "new.tfrecord")
        ps.add_fields(folder / "old.tfrecord", pa.table(new), into=folder / "both.tfrecord")
        parts = zip(
            *(examples(folder / f"{part}.tfrecord") for part in ("old", "new", "both")), strict=True
        )
        for before, added, after in parts:
            assert by_key(after) == {**by_key(before), **by_key(added)}
        ps.drop_fields(folder / "both.tfrecord", new.schema.names, in_place=True)
        assert (folder / "both.tfrecord").read_bytes() == (folder / "old.tfrecord").read_bytes()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_shard_stays_compressed_as_it_was(tmp_path: Path, compression: str | None) -> None:
    path, into = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    ps.write({"id": np.arange(30_000)}, path, compression=compression)
    ps.add_fields(path, {"square": np.arange(30_000) ** 2}, into=into, verify=True)
    found = examples(into, compression)
    squares = [e.features.feature["square"].int64_list.value[0] for e in found]
    assert squares == [n * n for n in range(30_000)]
    assert index_of(into).exists()
    assert ps.open(into).take([29_999]).to_pylist() == [{"id": 29_999, "square": 29_999**2}]


def test_constants_arrays_and_tensors_go_together(three: Path) -> None:
    boxes = np.arange(40, dtype=np.float32).reshape(10, 2, 2)
    fields = {"split": "train", "boxes": boxes, "weight": 0.5, "ids": [[n] * 2 for n in range(10)]}
    made = ps.add_fields(sources(three), fields, into=three / "out")
    assert made.num_records == 10
    last = ps.open(three / "out")[9]
    assert last["split"] == "train"
    assert last["weight"] == 0.5
    assert last["ids"] == [9, 9]
    assert last["boxes"].tolist() == [[36, 37], [38, 39]]


def test_a_table_goes_in_by_a_key_whatever_its_order(three: Path) -> None:
    table = pa.table({"id": np.arange(20)[::-1], "score": np.arange(20)[::-1] * 10})
    ps.add_fields(sources(three), table, by="id", in_place=True)
    assert [row["score"] for row in ps.open(sources(three))] == [n * 10 for n in range(10)]


def test_a_key_may_be_text(three: Path) -> None:
    table = pa.table({"text": [f"text {n}" for n in range(10)][::-1], "n": list(range(10))[::-1]})
    ps.add_fields(sources(three), table, by="text", in_place=True)
    assert [row["n"] for row in ps.open(sources(three))] == list(range(10))


def test_a_missing_key_is_an_error_or_a_null(three: Path) -> None:
    table = pa.table({"id": [0, 1, 2, 3, 5, 6, 7, 8, 9], "score": [1.0] * 9})
    with pytest.raises(ps.SchemaError, match=r"record 0, field 'id': the table has no row for 4"):
        ps.add_fields(sources(three), table, by="id", into=three / "out")
    assert not list((three / "out").glob("a-00001*"))
    ps.add_fields(
        sources(three), table, by="id", missing="null", into=three / "nulls", overwrite=True
    )
    rows = ps.open(three / "nulls", infer_records="all", schema=None)
    assert [row.get("score") for row in rows].count(None) == 1


def test_records_that_the_table_does_not_name_may_keep_their_values(three: Path) -> None:
    table = pa.table({"id": [7, 4], "text": ["seven", "four"]})
    asked = {"by": "id", "missing": "keep"}
    ps.replace_fields(sources(three), table, into=three / "out", **asked)
    expected = [{4: "four", 7: "seven"}.get(n, f"text {n}") for n in range(10)]
    found = ps.open(three / "out", types={"text": "string"})
    assert [row["text"] for row in found] == expected
    ps.replace_fields(sources(three), table, where="id > 5", in_place=True, **asked)
    expected[4] = "text 4"
    found = ps.open(sources(three), types={"text": "string"})
    assert [row["text"] for row in found] == expected
    with pytest.raises(ValueError, match="is for replace_fields"):
        ps.add_fields(sources(three), table.rename_columns(["id", "new"]), **asked)


def test_a_key_that_comes_twice_is_an_error(three: Path) -> None:
    for keys in ([1, 2, 1], ["text 1", "text 2", "text 1"]):
        by = "id" if keys[0] == 1 else "text"
        with pytest.raises(ps.SchemaError, match="twice"):
            ps.add_fields(sources(three), pa.table({by: keys, "x": [1, 2, 3]}), by=by, into=three)


def test_a_function_gets_the_columns_it_reads_and_gives_several(three: Path) -> None:
    seen: set[tuple[str, ...]] = set()

    def measure(batch: pa.RecordBatch) -> dict[str, Any]:
        seen.add(tuple(batch.schema.names))
        texts = batch.column("text").to_pylist()
        return {"length": [len(t) for t in texts], "last": [t[-1:] for t in texts], "kind": "text"}

    ps.add_fields(sources(three), measure, reads=["text"], in_place=True)
    assert seen == {("text",)}
    last = ps.open(sources(three))[9]
    assert (last["length"], last["last"], last["kind"]) == (6, "9", "text")


def test_a_function_result_of_the_wrong_length_or_type_is_reported(three: Path) -> None:
    calls: list[int] = []

    def short(batch: pa.RecordBatch) -> dict[str, Any]:
        calls.append(1)
        return {"x": [1] * (batch.num_rows if len(calls) == 1 else 1)}

    with pytest.raises(ps.SchemaError, match="one value for each record"):
        ps.add_fields(sources(three), short, reads=["id"], into=three / "out", threads=1)
    calls.clear()

    def wavering(batch: pa.RecordBatch) -> dict[str, Any]:
        calls.append(1)
        return {"x": [1 if len(calls) == 1 else "one"] * batch.num_rows}

    with pytest.raises(ps.SchemaError, match="another type"):
        ps.add_fields(sources(three), wavering, reads=["id"], into=three / "out", threads=1)


def test_a_field_that_exists_is_an_error_unless_replaced(three: Path) -> None:
    with pytest.raises(ps.SchemaError, match="the records already have this field"):
        ps.add_fields(sources(three), {"text": "new"}, in_place=True)
    ps.add_fields(sources(three), {"text": "new", "more": 1}, in_place=True, replace=True)
    assert ps.open(sources(three))[4] == {"id": 4, "more": 1, "text": "new"}


def test_a_field_that_only_a_late_record_has_is_found_by_its_bytes(tmp_path: Path) -> None:
    rare = pa.array([None] * 3000 + [1])
    ps.write({"id": np.arange(3001), "rare": rare}, tmp_path / "a.tfrecord", index=False)
    with pytest.raises(ps.SchemaError, match=r"record 3000, field 'rare'"):
        ps.add_fields(tmp_path / "a.tfrecord", {"rare": 2}, into=tmp_path / "b.tfrecord")
    assert not (tmp_path / "b.tfrecord").exists()


def test_renamed_fields_may_change_places(three: Path) -> None:
    ps.add_fields(sources(three), {"n": -1}, in_place=True)
    ps.rename_fields(sources(three), {"n": "id", "id": "n"}, in_place=True, verify=True)
    assert ps.open(sources(three))[7] == {"id": -1, "n": 7, "text": "text 7"}
    with pytest.raises(ps.SchemaError, match="already have this field"):
        ps.rename_fields(sources(three), {"n": "text"}, in_place=True)


def test_replaced_values_leave_nothing_of_the_old_values(three: Path) -> None:
    ps.replace_fields(sources(three), {"text": "short"}, in_place=True, verify=True)
    for path in sorted(three.glob("a-*.tfrecord")):
        assert b"text 1" not in path.read_bytes()
        for example in examples(path):
            assert example.features.feature["text"].bytes_list.value[0] == b"short"
    with pytest.raises(ps.SchemaError, match="add_fields adds new fields"):
        ps.replace_fields(sources(three), {"other": 1}, in_place=True)


def test_context_fields_of_sequence_examples_are_added_and_dropped(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"label": [1, 2], "frames": [[[1, 2], [3]], [[4]]]}, path)
    ps.add_fields(path, {"score": [0.5, 1.5]}, in_place=True, verify=True)
    ps.drop_fields(path, "frames", into=tmp_path / "b.tfrecord", verify=True)
    messages = [
        tf.train.SequenceExample.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(str(path))
    ]
    assert messages[1].context.feature["score"].float_list.value[0] == 1.5
    assert len(messages[0].feature_lists.feature_list["frames"].feature) == 2
    assert ps.open(tmp_path / "b.tfrecord")[0] == {"label": 1, "score": 0.5}


@pytest.mark.parametrize(
    "suffix", [".parquet", ".arrow", ".tar", ".tar.gz", ".msgpack", ".npz", ".h5"]
)
def test_other_formats_are_written_again(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    ps.write({"id": list(range(10)), "old": ["x"] * 10}, path)
    ps.add_fields(path, {"score": np.arange(10) / 4}, in_place=True, verify=True)
    ps.drop_fields(path, ["old"], in_place=True, verify=True)
    ps.rename_fields(path, {"id": "number"}, into=tmp_path / f"b{suffix}", verify=True)
    found = ps.open(tmp_path / f"b{suffix}", columns=["number", "score"]).take([3])
    assert found.to_pylist() == [{"number": 3, "score": 0.75}]
    if suffix.endswith(".gz"):
        assert path.read_bytes()[:2] == b"\x1f\x8b"


def test_a_pack_of_images_gets_other_ids(tmp_path: Path) -> None:
    jpeg = bytes.fromhex("ffd8ffe0") + bytes(20)
    ps.write({"label": [3.0, 1.0], "image": [jpeg] * 2}, tmp_path / "a.rec")
    ps.replace_fields(
        tmp_path / "a.rec", {"id2": np.array([7, 8], np.uint64)}, in_place=True, verify=True
    )
    found = ps.open(tmp_path / "a.rec")[1]
    assert found == {"label": 1.0, "id": 1, "id2": 8, "image": jpeg}


def test_fields_of_what_is_only_read_are_refused_by_its_name(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4, 4, 3), np.uint8)
    ps.write({"image": ps.encode_images(pixels, "png")}, f"{tmp_path}/pets/")
    message = "pets: the fields of imagefolder files cannot be changed"
    with pytest.raises(ps.UnsupportedError, match=message):
        ps.add_fields(tmp_path / "pets", {"k": [1, 2]}, into=tmp_path / "b")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["pets"]


def test_damage_is_an_error_that_names_the_record_or_stays_visible(three: Path) -> None:
    path = sorted(three.glob("a-*.tfrecord"))[1]
    data = bytearray(path.read_bytes())
    data[HEAD + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(ps.ChecksumError, match=r"a-00001.*record 0"):
        ps.add_fields(sources(three), {"x": 1}, into=three / "out")
    ps.add_fields(sources(three), {"x": 1}, into=three / "out", checksums="headers", overwrite=True)
    report = ps.verify(three / "out")
    assert [(f.kind, f.record) for f in report.findings] == [("data_checksum", 0)]
    with pytest.raises(tf.errors.DataLossError):
        examples(three / "out" / path.name)


def test_a_failed_job_leaves_nothing(three: Path) -> None:
    before = sorted(three.iterdir())
    with pytest.raises(ps.SchemaError):
        ps.add_fields(sources(three), {"x": [1, 2]}, into=three / "out")
    with pytest.raises(ps.SchemaError):
        ps.add_fields(sources(three), {"x": [object()] * 10}, into=three / "out")
    assert sorted(three.iterdir()) == before


def test_the_bytes_do_not_depend_on_the_threads(tmp_path: Path) -> None:
    ps.write({"id": np.arange(200_000)}, tmp_path / "a.tfrecord")
    made = []
    for threads in (1, 2, 5):
        into = tmp_path / f"{threads}.tfrecord"
        ps.add_fields(tmp_path / "a.tfrecord", {"x": 1.5}, into=into, threads=threads)
        made.append(into.read_bytes())
    assert made[0] == made[1] == made[2]


def test_a_job_on_half_finished_files_is_not_begun_by_another(three: Path) -> None:
    paths = sorted(three.glob("a-*.tfrecord"))
    script = (
        "import os, sys, penstock as ps\n"
        "from penstock.verbs.fields import rewrite_journal as journal\n"
        "finish = journal.Journal.finish\n"
        "def stop(self, shard):\n"
        "    finish(self, shard)\n"
        "    if shard == 1: os._exit(9)\n"
        "journal.Journal.finish = stop\n"
        "ps.add_fields(sys.argv[1:], {'x': 7}, in_place=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *map(str, paths)], check=False)
    assert done.returncode == 9
    has = ["x" in ps.open(path).schema.names for path in paths]
    assert has == [True, True, False]
    with pytest.raises(ps.UnsupportedError, match="is unfinished"):
        ps.add_fields(paths, {"y": 8}, in_place=True)
    ps.add_fields(paths, {"x": 7}, in_place=True)
    assert [row["x"] for row in ps.open(paths)] == [7] * 10
    assert not list(three.glob(".penstock*"))


def test_too_little_room_is_reported_before_anything_is_written(
    three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    usage = shutil.disk_usage(three)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    names = set(three.iterdir())
    before = {path: path.read_bytes() for path in three.glob("*.tfrecord")}
    with pytest.raises(OSError, match="are needed"):
        ps.add_fields(sources(three), {"x": 1}, in_place=True)
    assert {path: path.read_bytes() for path in three.glob("*.tfrecord")} == before
    assert set(three.iterdir()) == names


def test_progress_counts_up_to_the_end(three: Path) -> None:
    told: list[tuple[int, int, int]] = []
    ps.add_fields(sources(three), {"x": 1}, in_place=True, progress=lambda *now: told.append(now))
    assert told[-1][0] == 10
    assert told[-1][1] == told[-1][2]
    assert told == sorted(told)


def test_records_that_are_not_examples_are_refused(tmp_path: Path) -> None:
    ps.write([b"no example", b"either"], tmp_path / "a.tfrecord")
    with pytest.raises(ps.UnsupportedError, match="not Examples"):
        ps.add_fields(tmp_path / "a.tfrecord", {"x": 1}, in_place=True)


def test_a_file_that_grows_meanwhile_is_not_replaced(three: Path) -> None:
    path = min(three.glob("a-*.tfrecord"))
    calls: list[int] = []

    def growing(batch: pa.RecordBatch) -> dict[str, Any]:
        calls.append(batch.num_rows)
        if len(calls) == 2:  # the first result determines the types, before the job begins
            ps.append({"id": [99], "text": ["more"]}, path)
        return {"x": [1] * batch.num_rows}

    with pytest.raises(ps.ChangedError, match="changed while its fields were being changed"):
        ps.add_fields(path, growing, reads=["id"], in_place=True, threads=1)
    assert [row["id"] for row in ps.open(path)][-1] == 99


def test_the_columns_of_other_formats_stay_whatever_the_schema_shows(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ps.write({"id": list(range(5)), "image": [b"x"] * 5}, path)
    shown = ps.open(path, schema=pa.schema([("id", pa.int32())]))
    ps.add_fields(shown, {"n": 1}, in_place=True, verify=True)
    assert ps.open(path)[0] == {"id": 0, "image": b"x", "n": 1}


def test_large_unsigned_keys_are_found(tmp_path: Path) -> None:
    ids = [2**60 + n for n in range(100)]
    ps.write({"id": ids}, tmp_path / "a.tfrecord")
    table = pa.table({"id": pa.array(ids[::-1], pa.uint64()), "v": range(100)})
    ps.add_fields(tmp_path / "a.tfrecord", table, by="id", in_place=True)
    assert [row["v"] for row in ps.open(tmp_path / "a.tfrecord")] == list(range(100))[::-1]
    wide = pa.table({"id": pa.array([2**64 - 1, *ids], pa.uint64()), "w": range(101)})
    ps.add_fields(tmp_path / "a.tfrecord", wide, by="id", in_place=True)
    assert ps.open(tmp_path / "a.tfrecord")[0]["w"] == 1


def test_a_replaced_feature_list_stays_a_feature_list(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": [1, 2], "frames": [[["a"], ["b"]], [["c"]]]}, path)
    ps.replace_fields(path, {"frames": [["x"], ["y", "z"]]}, in_place=True, verify=True)
    messages = [
        tf.train.SequenceExample.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(str(path))
    ]
    lists = messages[1].feature_lists.feature_list
    assert [f.bytes_list.value[0] for f in lists["frames"].feature] == [b"y", b"z"]
    assert list(messages[1].context.feature) == ["id"]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_an_empty_shard_among_others_gets_its_overlay(tmp_path: Path, missing: int) -> None:
    for shard in range(3):
        rows = {"id": pa.array([] if shard == missing else [shard], pa.int64())}
        ps.write(rows, tmp_path / f"s{shard}.tfrecord")
    source = str(tmp_path / "s*.tfrecord")
    ps.add_fields(source, lambda b: {"x": [7] * b.num_rows}, reads=["id"])
    assert [row["x"] for row in ps.open(source)] == [7, 7]


def test_other_values_are_another_job(three: Path) -> None:
    from penstock.verbs.fields._new_fields import new_fields

    ds = ps.open(sources(three))
    big = pa.table({"v": range(20)})
    words = [pa.array(["a", "b"] * 5).dictionary_encode(), pa.array(["c", "d"] * 5)]
    tables = [
        big.slice(0, 10),
        big.slice(10),
        {"v": words[0]},
        {"v": words[1].dictionary_encode()},
        {"v": 1, "w": 2},
        {"v": 1, "w": 3},
    ]
    facts = [str(new_fields(ds, table).facts()) for table in tables]
    assert len(set(facts)) == len(facts)


def test_large_keys_are_the_same_job_again(three: Path) -> None:
    from penstock.verbs.fields._new_fields import new_fields

    ds = ps.open(sources(three))
    facts = set()
    for _ in range(3):
        keys = pa.array([2**64 - 1, *range(10)], pa.uint64())
        facts.add(str(new_fields(ds, pa.table({"id": keys, "w": range(11)}), by="id").facts()))
    assert len(facts) == 1
