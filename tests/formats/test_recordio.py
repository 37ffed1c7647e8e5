"""RecordIO: golden files, options, edges, damage, the text index."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from fuzz import mxnet_rules as rules
from memory_storage import MemoryStorage
from penstock.format import Appendable, Surveyed
from penstock.formats.recordio import RecordIOFormat
from penstock.types import ImageType, is_image
from reading import SHARED, read_bytes, run_python, shared_path

JPEG = b"\xff\xd8\xff\xe0"
PNG = b"\x89PNG\r\n\x1a\n"
GOLDEN = SHARED / "specs" / "golden" / "recordio"
CORPUS = SHARED / "corpus" / "recordio"


def opened(data: bytes, **options: Any) -> ps.Dataset:
    """A file that is only in memory."""
    name = options.pop("name", "m.rec")
    return ps.open(name, storage=MemoryStorage({name: data}), index="never", **options)


def rows(dataset: ps.Dataset) -> list[dict[str, Any]]:
    return [row for batch in dataset.scan() for row in batch.to_pylist()]


def pack_file(labels: list[Any], images: list[bytes] | None = None) -> bytes:
    images = [JPEG + b"%d" % n for n in range(len(labels))] if images is None else images
    pairs = zip(labels, images, strict=True)
    return rules.file_of(rules.pack(label, image, n) for n, (label, image) in enumerate(pairs))


# -- golden files and the corpus ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["plain", "bad_magic", "truncated_header", "truncated_payload", "ends_inside_multipart"]
)
def test_golden_files_give_their_records_and_then_their_fault(name: str) -> None:
    data = shared_path("specs", "golden", "recordio", f"{name}.rec").read_bytes()
    stated = json.loads((GOLDEN / f"{name}.rec.expected.json").read_text())
    found = read_bytes(data, path="m.rec")
    assert found.records == [bytes.fromhex(record) for record in stated["records_hex"]]
    if name == "plain":
        assert found.error is None
        assert rules.file_of(found.records) == data
    elif name == "bad_magic":
        assert isinstance(found.error, ps.FormatError)
        assert (found.error.record, found.error.byte) == (13, 484)
    else:
        # MXNet drops the record of the last one without a word.
        assert isinstance(found.error, ps.TruncatedError)
        assert found.error.record == len(found.records)


def test_a_record_that_begins_with_a_later_part_is_an_error() -> None:
    # MXNet takes it; no writer makes it.
    found = read_bytes((GOLDEN / "starts_with_part2.rec").read_bytes(), path="m.rec")
    assert found.records == []
    assert "out of order" in str(found.error)
    first_then_whole = rules.part(1, b"abcd") + rules.part(0, b"efgh")
    assert "out of order" in str(read_bytes(first_then_whole, path="m.rec").error)


def test_golden_images_have_their_labels_ids_and_pictures() -> None:
    path = str(GOLDEN / "images.rec")
    stated = json.loads((GOLDEN / "images.rec.expected.json").read_text())
    dataset = ps.open(path, index="never")
    assert dataset.schema.names == ["label", "id", "id2", "image"]
    assert is_image(dataset.schema.field("image").type)
    found = rows(dataset)
    assert len(found) == len(stated)
    for row, one in zip(found, stated, strict=True):
        label = one["label"]
        assert row["label"] == (label if isinstance(label, list) else [label])
        assert (row["id"], row["id2"]) == (one["id"], one["id2"])
        assert len(row["image"]) == one["payload_len"]
        assert row["image"][:8].hex() == one["payload_first8_hex"]


def test_golden_files_are_written_byte_for_byte(tmp_path: Path) -> None:
    for name, column in (("plain", "data"), ("indexed", "data")):
        payloads = rules.records_of((GOLDEN / f"{name}.rec").read_bytes())[0]
        ps.write({column: pa.array(payloads, pa.binary())}, tmp_path / f"{name}.rec")
        assert (tmp_path / f"{name}.rec").read_bytes() == (GOLDEN / f"{name}.rec").read_bytes()
    offsets = rules.index_of((GOLDEN / "indexed.idx").read_bytes())
    mine = rules.index_of((tmp_path / "indexed.idx").read_bytes())
    assert list(mine.values()) == list(offsets.values())
    assert list(mine) == ["0", "1", "2", "3"]


OPEN = """
import json, resource, sys, time
import penstock as ps
import numpy, pyarrow
pyarrow.array([{"a": b""}]).to_pylist()
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, out = rss(), {}
for path in sys.argv[1:]:
    start = time.monotonic()
    ds = ps.open(path, index="never")
    rows = sum(b.num_rows for b in ds.scan())
    out[path] = [ds.shards[0].format, ds.schema.names, rows, time.monotonic() - start]
print(json.dumps([out, rss() - before]))
"""


def test_the_corpus_opens_with_its_counts_also_without_a_name(tmp_path: Path) -> None:
    stated = {
        "CGZZT/val.rec": (392, True),
        "Image-detect/val.rec": (4, True),
        "peer-made/mx_multipart.rec": (20, False),
        "sagemaker-xgboost-container/single_feature_label.pb": (1, False),
        "sagemaker-xgboost-container/sparse_edge_cases-diagonal.pbr": (3, False),
        "sagemaker-xgboost-container/sparse_edge_cases-rectangular_sparse.pbr": (4, False),
        "sagemaker-xgboost-container/train.pb": (5, False),
    }
    paths: dict[str, str] = {}
    for name in stated:
        paths[str(CORPUS / name)] = name
        nameless = tmp_path / name.replace("/", "_").replace(".", "_")
        nameless.write_bytes((CORPUS / name).read_bytes())
        paths[str(nameless)] = name
    said, grown = json.loads(run_python(OPEN, *paths, megabytes=1024))
    for path, name in paths.items():
        number, is_pack = stated[name]
        names = ["label", "id", "id2", "image"] if is_pack else ["data"]
        assert said[path][:3] == ["recordio", names, number], name
        assert said[path][3] < 2, name
    assert grown < 300


def test_records_of_many_parts_are_those_that_mxnet_wrote() -> None:
    import hashlib

    stated = json.loads((CORPUS / "peer-made" / "mx_multipart.expected.json").read_text())
    found = rows(ps.open(str(CORPUS / "peer-made" / "mx_multipart.rec"), index="never"))
    assert [hashlib.sha256(row["data"]).hexdigest() for row in found] == [
        record["sha256"] for record in stated["records"]
    ]


def test_a_detection_pack_has_as_many_labels_as_its_flag_says() -> None:
    dataset = ps.open(str(CORPUS / "Image-detect" / "val.rec"), index="never")
    assert dataset.schema.field("label").type == pa.list_(pa.float32(), 19)
    assert dataset.schema.field("image").type == ImageType("jpeg")
    assert dataset.take([3, 0]).column("label").to_pylist()[1][:4] == [4, 5, 768, 576]


# -- what is read ---------------------------------------------------------------------------------


def test_labels_are_a_number_so_many_or_lists() -> None:
    kinds: list[tuple[list[Any], pa.DataType]] = [
        ([1.0, 2.0], pa.float32()),
        ([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
        ([[1.0], [3.0, 4.0]], pa.list_(pa.float32())),
        ([1.0, [3.0, 4.0]], pa.list_(pa.float32())),
    ]
    for labels, type_ in kinds:
        dataset = opened(pack_file(labels))
        assert dataset.schema.field("label").type == type_
        are_lists = pa.types.is_list(type_)
        wanted = [[one] if are_lists and isinstance(one, float) else one for one in labels]
        assert [row["label"] for row in rows(dataset)] == wanted


def test_a_face_pack_opens(tmp_path: Path) -> None:
    # Record 0 says where the identities are and has no image; so have the identities at the end.
    faces = [rules.pack([7.0, 9.0], b"", 0)]
    faces += [rules.pack(float(n // 2), JPEG + bytes(n), n) for n in range(1, 7)]
    faces += [rules.pack([1.0, 3.0], b"", 7), rules.pack([3.0, 7.0], b"", 8)]
    found = rows(opened(rules.file_of(faces)))
    assert found[0] == {"label": [7.0, 9.0], "id": 0, "id2": 0, "image": b""}
    assert [row["label"] for row in found[1:7]] == [[n // 2] for n in range(1, 7)]
    assert [row["image"] for row in found[1:7]] == [JPEG + bytes(n) for n in range(1, 7)]


def test_a_later_record_with_other_labels_is_named_with_what_to_try() -> None:
    labels: list[Any] = [1.0] * 1500
    labels[1300] = [1.0, 2.0]
    dataset = opened(pack_file(labels))
    with pytest.raises(ps.SchemaError, match='label="list"') as caught:
        rows(dataset)
    assert (caught.value.record, caught.value.field, caught.value.file) == (1300, "label", "m.rec")
    for options in ({"label": "list"}, {"infer_records": "all"}):
        assert rows(opened(pack_file(labels), **options))[1300]["label"] == [1.0, 2.0]
    assert [row["id"] for row in rows(opened(pack_file(labels), columns=["id"]))][1300] == 1300


@pytest.mark.parametrize(("missing", "word"), [(1, "header"), (25, "header"), (29, "labels")])
def test_a_short_record_of_a_pack_is_named(missing: int, word: str) -> None:
    good = rules.pack([1.0, 2.0], JPEG)
    short = good[: 24 - 1] if missing == 1 else good[: 0 if missing == 25 else 31]
    data = rules.file_of([good, good, short])
    with pytest.raises(ps.SchemaError, match=word) as caught:
        rows(opened(data, header=True))
    assert caught.value.record == 2
    assert rows(opened(data))[2] == {"data": short}


def test_what_is_no_image_is_data_unless_the_caller_knows_better() -> None:
    data = pack_file([1.0, 2.0], [b"no image", b""])
    assert opened(data).schema.names == ["data"]
    assert rows(opened(data, header=True))[0] == {
        "label": 1.0,
        "id": 0,
        "id2": 0,
        "image": b"no image",
    }
    assert opened(data, header=True).schema.field("image").type == pa.binary()
    images = pack_file([1.0, 2.0], [JPEG, PNG])
    assert opened(images).schema.field("image").type == ImageType("")
    assert opened(images, header=False).schema.names == ["data"]


def test_raw_gives_payloads_and_a_header_may_hold_the_magic() -> None:
    # An id whose bytes are the magic cuts the record within its header.
    number = int.from_bytes(rules.MAGIC_BYTES * 2, "little")
    payload = rules.pack([1.0], JPEG + rules.MAGIC_BYTES * 3 + b"x", number, number)
    assert len(rules.frame(payload)) > len(payload) + 8
    found = rows(opened(rules.file_of([payload])))
    assert found == [
        {"label": [1.0], "id": number, "id2": number, "image": payload[28:]},
    ]
    assert rows(opened(rules.file_of([payload]), raw=True)) == [{"record": payload}]


def test_a_schema_chooses_and_casts() -> None:
    data = pack_file([1.0, 2.0])
    asked = pa.schema([("image", pa.binary_view()), ("label", pa.int64()), ("extra", pa.int8())])
    assert opened(data, schema=asked).take([1]).to_pylist() == [
        {"image": JPEG + b"1", "label": 2, "extra": None}
    ]
    with pytest.raises(ps.SchemaError, match="label"):
        rows(opened(pack_file([1.5]), schema=pa.schema([("label", pa.int64())])))
    needed = pa.schema([pa.field("extra", pa.int8(), nullable=False)])
    for schema in (needed, pa.schema([("label", pa.int64()), ("data", pa.binary())])):
        with pytest.raises(ps.SchemaError, match="no such columns"):
            opened(data, schema=schema)
    lists = pa.schema([("label", pa.list_(pa.float32()))])
    assert rows(opened(data, schema=lists)) == [{"label": [1.0]}, {"label": [2.0]}]
    assert rows(opened(data, schema=pa.schema([("record", pa.binary())])))[0]["record"][-5:] == (
        JPEG + b"0"
    )


def test_unknown_options_and_schemas_are_refused() -> None:
    data = pack_file([1.0])
    with pytest.raises(ValueError, match="label"):
        opened(data, label="vector")
    with pytest.raises(TypeError, match="header"):
        opened(data, headers=True)
    with pytest.raises(ps.UnsupportedError, match="pyarrow"):
        opened(data, schema={"label": int})


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(b"")
    dataset = ps.open(str(tmp_path / "a.rec"), index="never")
    assert (len(dataset), rows(dataset)) == (0, [])


def test_padding_may_hold_anything() -> None:
    padded = rules.part(0, b"abcde")[:-3] + b"xyz"
    assert rows(opened(padded + rules.part(0, b"f"))) == [{"data": b"abcde"}, {"data": b"f"}]


def test_a_record_beyond_the_limit_is_refused_before_it_is_read() -> None:
    data = rules.file_of([b"small", bytes(5000)])
    with pytest.raises(ps.LimitError):
        rows(opened(data, limits={"record_bytes": 4000}))


# -- damage ---------------------------------------------------------------------------------------


def small_file() -> bytes:
    return pack_file(
        [1.0, [2.0, 3.0], 4.0], [JPEG + b"abc", JPEG + rules.MAGIC_BYTES * 2 + b"x", b""]
    )


@pytest.mark.parametrize("damage", ["error", "skip", "salvage"])
def test_no_cut_or_flip_of_a_file_gives_what_is_not_there(damage: str) -> None:
    data = small_file()
    for cut in range(len(data)):
        try:
            wanted, error = rules.records_of(data[:cut])[0], False
        except rules.Broken as broken:
            wanted, error = broken.args[0], True
        found = read_bytes(data[:cut], path="m.rec", damage=damage)
        assert found.records == wanted, cut
        assert (found.error is not None or bool(found.damage)) == error, cut
    rng = random.Random(4)
    for bit in rng.sample(range(8 * len(data)), 400):
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        if not flipped.startswith(rules.MAGIC_BYTES):
            continue
        found = read_bytes(bytes(flipped), path="m.rec", damage=damage)
        try:
            assert found.records == rules.records_of(bytes(flipped))[0]
        except rules.Broken as broken:
            at = len(broken.args[0])
            assert found.records[:at] == broken.args[0]
            assert found.error is not None or found.damage
        for options in ({}, {"header": True, "label": "list"}):
            try:
                rows(opened(bytes(flipped), damage=damage, **options))
            except ps.PenstockError:
                pass


def test_an_index_finds_bit_rot_that_the_format_cannot(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    ps.write({"label": [1, 2, 3], "image": [JPEG + bytes(50)] * 3}, path)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    state = os.stat(path)
    path.write_bytes(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(ps.ChecksumError) as caught:
        rows(ps.open(str(path)))
    assert caught.value.record == 2
    assert len(rows(ps.open(str(path), index="never"))) == 3
    assert len(rows(ps.open(str(path), damage="skip"))) == 2


def test_verify_and_repair_leave_out_what_is_broken(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    payloads = [b"first", b"second" + rules.MAGIC_BYTES * 4, b"third record", b"fourth"]
    data = bytearray(rules.file_of(payloads))
    data[len(rules.file_of(payloads[:2]))] ^= 1
    path.write_bytes(data)
    assert len(ps.verify(str(path)).findings) == 1
    ps.repair(str(path), into=str(tmp_path / "b.rec"))
    assert rules.records_of((tmp_path / "b.rec").read_bytes())[0] == [
        payloads[0],
        payloads[1],
        payloads[3],
    ]


def hostile_files() -> dict[str, bytes]:
    """Shapes that would cost the square of their size, were every place followed to its end."""
    empty = rules.part(0, b"")
    count = 60_000
    heads = b"".join(
        (rules.MAGIC).to_bytes(4, "little") + (1 << 29 | 8 * (count - n - 1)).to_bytes(4, "little")
        for n in range(count)
    )
    middles = rules.part(2, b"") * count
    begun = rules.part(0, b"abcd") * 10 + bytes(8)
    return {
        "many parts": rules.part(1, b"") + middles + rules.part(3, b""),
        "many parts without an end": rules.part(1, b"") + middles,
        "records up to a cut": begun + empty * count + b"x",
        "chains that merge": begun + heads + middles,
        "chains that merge and end": begun + heads + middles + rules.part(3, b""),
    }


@pytest.mark.parametrize("name", hostile_files())
@pytest.mark.parametrize("damage", ["error", "skip", "salvage"])
def test_hostile_files_are_read_in_time(name: str, damage: str) -> None:
    import time

    start = time.process_time()
    read_bytes(hostile_files()[name], path="m.rec", damage=damage)
    assert time.process_time() - start < 5, "the tests' usual cost is a tenth of a second"


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


def test_a_missing_text_index_is_made_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "a.rec")
    ps.write({"data": [b"a", b"bcdef"]}, path, idx=False)
    assert not (tmp_path / "a.idx").exists()
    assert ps.index(path, text=True) == [path + ".penstock"]
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


def test_indexes_and_lists_beside_packs_are_no_shards(tmp_path: Path) -> None:
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
    assert [name for name in os.listdir(tmp_path) if name[0] in ".c"] == ["c-00001-of-00002.idx"]


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


def test_the_format_can_be_verified_and_appended_to() -> None:
    fmt = RecordIOFormat()
    assert isinstance(fmt, Surveyed)
    assert isinstance(fmt, Appendable)
    assert not fmt.sniff(b"", 0)
    assert not fmt.sniff(rules.MAGIC_BYTES + b"\x00\x00\x00\x80", 8)
