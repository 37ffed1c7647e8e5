"""Reading RecordIO: golden files, the corpus, labels and images, options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from recordio_files import JPEG, opened, pack_file, rows

import penstock as ps
from fuzz import mxnet_rules as rules
from penstock.columns.types import ImageType, is_image
from penstock.formats.recordio.format import RecordIOFormat
from reading import SHARED, read_bytes, run_python, shared_path

PNG = b"\x89PNG\r\n\x1a\n"
GOLDEN = SHARED / "specs" / "golden" / "recordio"
CORPUS = SHARED / "corpus" / "recordio"


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
        # MXNet silently drops the record of the last part.
        assert isinstance(found.error, ps.TruncatedError)
        assert found.error.record == len(found.records)


def test_a_record_that_begins_with_a_later_part_is_an_error() -> None:
    # MXNet accepts it, but no writer makes it.
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


def test_records_of_many_parts_equal_what_mxnet_wrote() -> None:
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


def test_labels_are_numbers_or_lists_of_fixed_or_any_length() -> None:
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
    # Record 0 has no image: it gives the positions of the identities. The identities at the end
    # have no image either.
    faces = [rules.pack([7.0, 9.0], b"", 0)]
    faces += [rules.pack(float(n // 2), JPEG + bytes(n), n) for n in range(1, 7)]
    faces += [rules.pack([1.0, 3.0], b"", 7), rules.pack([3.0, 7.0], b"", 8)]
    found = rows(opened(rules.file_of(faces)))
    assert found[0] == {"label": [7.0, 9.0], "id": 0, "id2": 0, "image": b""}
    assert [row["label"] for row in found[1:7]] == [[n // 2] for n in range(1, 7)]
    assert [row["image"] for row in found[1:7]] == [JPEG + bytes(n) for n in range(1, 7)]


def test_a_later_record_with_other_labels_is_named_with_a_hint() -> None:
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
    with pytest.raises(ps.FormatError, match=word) as caught:
        rows(opened(data, header=True))
    assert caught.value.record == 2
    assert rows(opened(data))[2] == {"data": short}


def test_bytes_that_are_not_an_image_are_data_unless_the_caller_knows_better() -> None:
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
        with pytest.raises(ps.SchemaError, match="these columns together"):
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


def test_the_format_can_be_verified_and_appended_to() -> None:
    fmt = RecordIOFormat()
    assert fmt.finds_next
    assert fmt.info.can_append
    assert not fmt.sniff(b"", 0)
    assert not fmt.sniff(rules.MAGIC_BYTES + b"\x00\x00\x00\x80", 8)
