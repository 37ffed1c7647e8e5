"""Writing RecordIO: labels, ids and images, what is refused, and the text index next to the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from recordio_files import JPEG

import penstock as ps
from fuzz import mxnet_rules as rules
from penstock.columns.types import ImageType
from reading import index_of

# -- what is written ------------------------------------------------------------------------------


def test_numbers_ids_and_classes_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    images = [JPEG, JPEG + b"x", b""]
    cases: list[tuple[Any, list[Any]]] = [
        (pa.array([3, -1, 1 << 24]), [3.0, -1.0, float(1 << 24)]),
        (pa.array([0.1, 2.5, float("inf")]), [float(np.float32(0.1)), 2.5, float("inf")]),
        (pa.array([True, False, True]), [1.0, 0.0, 1.0]),
        (pa.array(["cat", "dog", "cat"]).dictionary_encode(), [0.0, 1.0, 0.0]),
        (pa.array([[1], [2, 3], [4]], pa.large_list(pa.int8())), [[1.0], [2.0, 3.0], [4.0]]),
        (pa.array([[1, 2], [2, 3], [4, 5]], pa.list_(pa.float64(), 2)), [[1, 2], [2, 3], [4, 5]]),
    ]
    for labels, wanted in cases:
        ps.write({"image": pa.array(images), "label": labels}, path, overwrite=True)
        found = [rules.unpack(payload) for payload in rules.records_of(path.read_bytes())[0]]
        assert found == [(label, n, 0, images[n]) for n, label in enumerate(wanted)]
        # A slice of a column means the same.
        table = pa.table({"label": labels, "image": pa.array(images)}).slice(1)
        ps.write(table, path, overwrite=True)
        found = [rules.unpack(payload) for payload in rules.records_of(path.read_bytes())[0]]
        assert found == [(label, n, 0, images[n + 1]) for n, label in enumerate(wanted[1:])]
    ids = pa.array([7, 5, (1 << 64) - 1], pa.uint64())
    ps.write({"label": [1, 2, 3], "image": images, "id2": ids, "id": ids}, path, overwrite=True)
    found = [rules.unpack(payload)[1:3] for payload in rules.records_of(path.read_bytes())[0]]
    assert found == [(n, n) for n in ids.to_pylist()]


def test_images_of_any_binary_type_are_written_alike(tmp_path: Path) -> None:
    images = [JPEG + bytes(20), JPEG + rules.MAGIC_BYTES + bytes(16)]
    made: set[bytes] = set()
    image: pa.Array
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(24)):
        image = pa.array(images, type_)
        for column in (image, pa.ExtensionArray.from_storage(ImageType("jpeg", type_), image)):
            ps.write(
                pa.table({"label": [1, 2], "image": column}), tmp_path / "a.rec", overwrite=True
            )
            made.add((tmp_path / "a.rec").read_bytes())
    assert made == {rules.file_of(rules.pack(n + 1, one, n) for n, one in enumerate(images))}


REFUSED: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "other columns": ({"label": [1], "image": [b""], "name": ["x"]}, "columns=", None),
    "no image": ({"label": [1]}, "columns=", None),
    "text": ({"label": [1], "image": ["x"]}, "image", None),
    "words as labels": ({"label": ["x"], "image": [b""]}, "label", None),
    "text as data": ({"data": ["x"]}, "data", None),
    "ids that are no integers": ({"label": [1], "image": [b""], "id": [1.5]}, "id", None),
    "a null label": ({"label": [1, None], "image": [b"", b""]}, "null", 1),
    "a null image": ({"label": [1, 2], "image": [b"", None]}, "null", 1),
    "a null payload": ({"data": [b"", None]}, "null", 1),
    "a null in a list": ({"label": [[1.0], [2.0, None]], "image": [b"", b""]}, "null", 1),
    "an empty list": ({"label": [[1.0], []], "image": [b"", b""]}, "empty", 1),
    "a rounded label": ({"label": [1, (1 << 24) + 1], "image": [b"", b""]}, "round", 1),
    "a label that is too large": ({"label": [1.0, 1e39], "image": [b"", b""]}, "float32", 1),
    "a negative id": ({"label": [1, 2], "image": [b"", b""], "id": [0, -1]}, "negative", 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    data, word, record = REFUSED[name]
    with pytest.raises(ps.SchemaError, match=word) as caught:
        ps.write(data, tmp_path / "a.rec")
    assert caught.value.record == record
    assert os.listdir(tmp_path) == []


def test_batches_that_number_classes_differently_are_refused(tmp_path: Path) -> None:
    labels = [pa.array(some).dictionary_encode() for some in (["a", "b"], ["b", "a"])]
    batches = [pa.record_batch({"label": one, "image": [b"", b""]}) for one in labels]
    with pytest.raises(ps.SchemaError, match="differently"):
        ps.write(pa.RecordBatchReader.from_batches(batches[0].schema, batches), tmp_path / "a.rec")


@pytest.mark.stress
def test_a_record_of_half_a_gibibyte_is_refused(tmp_path: Path) -> None:
    most = (1 << 29) - 1
    ps.write({"data": pa.array([bytes(most)], pa.large_binary())}, tmp_path / "a.rec")
    assert (tmp_path / "a.rec").stat().st_size == 8 + most + 1
    with pytest.raises(ps.SchemaError, match="more bytes") as caught:
        ps.write({"data": pa.array([b"", bytes(most + 1)], pa.large_binary())}, tmp_path / "b.rec")
    assert caught.value.record == 1


# -- the text index -------------------------------------------------------------------------------


def test_the_text_index_leads_to_each_record(tmp_path: Path) -> None:
    payloads = [b"x" * n + rules.MAGIC_BYTES * (n % 3) for n in range(50)]
    ps.write({"data": payloads}, tmp_path / "a.rec")
    data = (tmp_path / "a.rec").read_bytes()
    offsets = rules.index_of((tmp_path / "a.idx").read_bytes())
    assert list(offsets) == [str(n) for n in range(50)]
    for number, start in enumerate(offsets.values()):
        assert data[start:].startswith(rules.frame(payloads[number]))


def test_a_missing_text_index_is_made_and_a_wrong_text_index_is_reported(tmp_path: Path) -> None:
    path = str(tmp_path / "a.rec")
    ps.write({"data": [b"a", b"bcdef"]}, path, idx=False)
    assert not (tmp_path / "a.idx").exists()
    assert ps.index(path, text=True) == [str(index_of(path))]
    assert (tmp_path / "a.idx").read_text() == "0\t0\n1\t12\n"
    ps.index(path, from_text=True)
    for fine in ("x\t0\ny\t12", "0\t0\r\n1\t12\r\n", "0\t0\tmore\n1\t12\tx\n"):
        (tmp_path / "a.idx").write_bytes(fine.encode())
        ps.index(path, from_text=True)
    for wrong in ("0\t0\n", "0\t0\n1\t16\n", "0 0\n1 12\n", "0\t0\n\n1\t12\n", "0\tx\n1\t12\n"):
        (tmp_path / "a.idx").write_bytes(wrong.encode())
        with pytest.raises(ps.StaleIndexError):
            ps.index(path, from_text=True)
    with pytest.raises(ps.UnsupportedError, match="mxnet"):
        ps.index(path, text="dali")


def test_indexes_and_lists_next_to_packs_are_not_shards(tmp_path: Path) -> None:
    for name in ("a", "b"):
        ps.write({"data": [b"x", b"y"]}, tmp_path / f"{name}.rec")
        (tmp_path / f"{name}.lst").write_text("0\t1.0\tx.jpg\n")
    assert len(ps.open(str(tmp_path))) == len(ps.open(str(tmp_path / "*"))) == 4


def test_the_text_index_is_whole_or_absent_like_its_file(tmp_path: Path) -> None:
    ps.write({"data": [b"x"] * 10}, tmp_path / "a.rec", num_shards=2)
    names = {"a-00000-of-00002", "a-00001-of-00002"}
    assert {name[:-4] for name in os.listdir(tmp_path) if name.endswith(".idx")} == names
    (tmp_path / "b.idx").write_text("mine")
    with pytest.raises(FileExistsError):
        ps.write({"data": [b"x"]}, tmp_path / "b.rec")
    assert not (tmp_path / "b.rec").exists()
    assert (tmp_path / "b.idx").read_text() == "mine"
    ps.write({"data": [b"x"]}, tmp_path / "b.rec", overwrite=True)
    assert (tmp_path / "b.idx").read_text() == "0\t0\n"
    (tmp_path / "c-00001-of-00002.idx").write_text("mine")
    with pytest.raises(FileExistsError):
        ps.write({"data": [b"x"] * 2}, tmp_path / "c.rec", shard_records=1)
    left = [name for name in os.listdir(tmp_path) if name.startswith((".c", "c"))]
    assert left == ["c-00001-of-00002.idx"]


def test_the_text_index_follows_its_file(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    ps.write({"data": [b"one", b"two", b"three"]}, path)
    (tmp_path / "a.idx").write_text("k0\t0\nk1\t12\nk2\t24")
    ps.append({"data": [b"four", b"five"]}, str(path))
    data = path.read_bytes()
    assert rules.records_of(data)[0] == [b"one", b"two", b"three", b"four", b"five"]
    kept = {"k0": 0, "k1": 12, "k2": 24, "3": 40, "4": 52}
    assert rules.index_of((tmp_path / "a.idx").read_bytes()) == kept
    path.write_bytes(data[:12] + b"x" + data[13:])
    ps.repair(str(path), in_place=True)
    assert rules.records_of(path.read_bytes())[0] == [b"one", b"three", b"four", b"five"]
    starts = {"0": 0, "1": 12, "2": 28, "3": 40}
    assert rules.index_of((tmp_path / "a.idx").read_bytes()) == starts


def test_converted_packs_have_their_text_indexes(tmp_path: Path) -> None:
    ps.write({"label": [1, 2, 3], "image": [JPEG] * 3}, tmp_path / "a.rec")
    ps.convert(str(tmp_path / "a.rec"), tmp_path / "b.rec", num_shards=3)
    made = sorted(name for name in os.listdir(tmp_path) if not name.endswith(".penstock"))
    stems = ["a", *(f"b-0000{n}-of-00003" for n in range(3))]
    assert made == sorted(f"{stem}.{end}" for stem in stems for end in ("idx", "rec"))


def test_raw_records_move_between_framings(tmp_path: Path) -> None:
    payloads = [b"", b"x" * 9, rules.MAGIC_BYTES * 3]
    ps.write({"record": payloads}, tmp_path / "a.tfrecord")
    ps.convert(ps.open(str(tmp_path / "a.tfrecord"), raw=True), tmp_path / "b.rec")
    assert (tmp_path / "b.rec").read_bytes() == rules.file_of(payloads)
    ps.convert(ps.open(str(tmp_path / "b.rec"), raw=True), tmp_path / "c.tfrecord")
    assert (tmp_path / "c.tfrecord").read_bytes() == (tmp_path / "a.tfrecord").read_bytes()
