"""Fields spliced into existing Examples: TensorFlow reads old and new fields, and damage stays detectable."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is the oracle of these tests")

import penstock as ps  # noqa: E402
import strategies  # noqa: E402
from formats.odd_examples import OddExamples  # noqa: E402
from frames import FRAMING, HEAD, file_of  # noqa: E402
from penstock import _core  # noqa: E402

KINDS = {pa.int64(): "int64_list", pa.float32(): "float_list", pa.binary(): "bytes_list"}


def walked(data: bytes | _core.Buffer) -> _core.Frames:
    buffer = _core.Buffer.from_bytes(data) if isinstance(data, bytes) else data
    frames, consumed, _, fault = _core.walk("tfrecord", buffer, 0, 1 << 40)
    assert (consumed, fault) == (len(buffer), None)
    return frames


def payloads(frames: _core.Frames) -> list[bytes]:
    return [frames.payload(record) for record in range(len(frames))]


def splice(old: list[bytes], fields: Any = None, kind: str = "example", **how: Any) -> list[bytes]:
    """The payloads after splicing, each verified against its new checksum."""
    framed, _ = _core.splice_fields(walked(file_of(old)), fields, kind, **how)
    assert framed.data.to_bytes() == file_of(payloads(walked(framed.data)))
    return payloads(walked(framed.data))


def fill(features: Any, values: dict[str, Any]) -> None:
    for key, given_ in values.items():
        feature = features.feature[key]
        if given_ is not None:
            kind, items = given_
            getattr(feature, kind).SetInParent()
            getattr(feature, kind).value.extend(items)


def example(values: dict[str, Any]) -> Any:
    message = tf.train.Example()
    message.features.SetInParent()
    fill(message.features, values)
    return message


def serialized(message: Any) -> bytes:
    return message.SerializeToString(deterministic=True)


def by_key(features: Any) -> dict[str, bytes]:
    return {key: serialized(feature) for key, feature in features.feature.items()}


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The features of each row, as `example` takes them; nulls become absent features."""
    rows: list[dict[str, Any]] = [{} for _ in range(batch.num_rows)]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_list = pa.types.is_list(column.type)
        kind = KINDS[column.type.value_type if is_list else column.type]
        for row, value in zip(rows, column.to_pylist(), strict=True):
            if value is not None:
                row[name] = (kind, value if is_list else [value])
    return rows


@st.composite
def records_and_fields(draw: st.DrawFn) -> tuple[list[dict[str, Any]], pa.RecordBatch]:
    """Records, and new fields that no record has yet."""
    batch = draw(strategies.batches(max_records=5))
    count = batch.num_rows
    old = draw(st.lists(strategies.features, min_size=count, max_size=count))
    return [{k: v for k, v in row.items() if k not in batch.schema.names} for row in old], batch


# Adding


@given(records_and_fields(), st.booleans())
def test_the_result_is_old_plus_new(
    made: tuple[list[dict[str, Any]], pa.RecordBatch], verify: bool
) -> None:
    old, fields = made
    found = splice([serialized(example(row)) for row in old], fields, verify=verify)
    for payload, before, added in zip(found, old, rows_of(fields), strict=True):
        assert tf.train.Example.FromString(payload) == example(before | added)


@given(records_and_fields())
def test_adding_and_dropping_a_field_leaves_no_trace(
    made: tuple[list[dict[str, Any]], pa.RecordBatch],
) -> None:
    old = [serialized(example(row)) for row in made[0]]
    assert splice(splice(old, made[1]), drop=made[1].schema.names) == old


@given(records_and_fields(), st.booleans(), st.booleans())
def test_adding_and_dropping_a_context_field_leaves_no_trace(
    made: tuple[list[dict[str, Any]], pa.RecordBatch], with_context: bool, with_lists: bool
) -> None:
    old = []
    for row in made[0]:
        message = tf.train.SequenceExample()
        if with_context or not with_lists:
            message.context.SetInParent()
            fill(message.context, row)
        if with_lists:
            message.feature_lists.feature_list["f"].feature.add().int64_list.value.append(1)
        old.append(serialized(message))
    names = [f"context/{name}" for name in made[1].schema.names]
    fields = made[1].rename_columns(names)
    new = splice(old, fields, "sequence")
    for payload, before, added in zip(new, old, rows_of(made[1]), strict=True):
        expected = tf.train.SequenceExample.FromString(before)
        if added:
            fill(expected.context, added)
        assert tf.train.SequenceExample.FromString(payload) == expected
    assert splice(new, drop=names, kind="sequence") == old


def test_an_empty_record_gets_fields_and_keeps_an_empty_message() -> None:
    new = splice([b""], pa.record_batch({"n": [7]}))
    assert tf.train.Example.FromString(new[0]) == example({"n": ("int64_list", [7])})
    assert splice(new, drop=["n"]) == [b"\x0a\x00"]


def test_feature_lists_are_added_to_a_sequence() -> None:
    message = tf.train.SequenceExample()
    message.context.feature["c"].int64_list.value.append(1)
    message.feature_lists.feature_list["f"].feature.add().int64_list.value.append(1)
    fields = pa.record_batch({"g": pa.array([[[1, 2], [3]]]), "d": pa.array([4])})
    (payload,) = splice([serialized(message)], fields, "sequence")
    message.context.feature["d"].int64_list.value.append(4)
    for values in ([1, 2], [3]):
        frame = message.feature_lists.feature_list["g"].feature.add()
        frame.int64_list.value.extend(values)
    assert tf.train.SequenceExample.FromString(payload) == message


def test_a_field_that_exists_is_named() -> None:
    old = [serialized(example({"b": None} | extra)) for extra in ({}, {"a": None})]
    with pytest.raises(_core.KernelError) as caught:
        splice(old, pa.record_batch({"a": [1, 2]}))
    fault = caught.value.args[0]
    assert (fault.kind, fault.record, fault.field) == ("schema", 1, "a")
    present = pa.record_batch(_core.has_fields(walked(file_of(old)), ["a", "b"], "example"))
    assert present.to_pydict() == {"a": [False, True], "b": [True, True]}


PARSE = """
import sys
import tensorflow as tf

def features(make):
    return {"a": make(tf.int64), "b": make(tf.string), "f": make(tf.float32), "n": make(tf.int64)}

def values(found):
    return {k: tf.reshape(getattr(v, "values", v), [-1]).numpy().tolist() for k, v in found.items()}

one = {"a": [5], "b": [b"x"], "f": [1.5], "n": [7]}
two = {k: v * 2 for k, v in one.items()}
forms = [
    features(lambda d: tf.io.FixedLenFeature([], d)), features(tf.io.VarLenFeature),
    features(tf.io.RaggedFeature),
]
for payload in sys.argv[1:]:
    payload = bytes.fromhex(payload)
    for spec in forms:
        assert values(tf.io.parse_single_example(payload, spec)) == one
        assert values(tf.io.parse_example([payload, payload], spec)) == two
        found = tf.io.parse_single_sequence_example(payload, spec, {"s": tf.io.VarLenFeature(tf.int64)})
        assert values(found[0]) == one
        found = tf.io.parse_sequence_example([payload] * 2, spec, {"s": tf.io.VarLenFeature(tf.int64)})
        assert values(found[0]) == two
"""


def parsed_by_tensorflow(given_: list[bytes]) -> str:
    """TensorFlow's output on stderr, with all of its parsers."""
    command = [sys.executable, "-c", PARSE, *(payload.hex() for payload in given_)]
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    done = subprocess.run(
        command, env=os.environ | quiet, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_all_parsers_of_tensorflow_read_the_result_without_a_warning() -> None:
    old = {"a": ("int64_list", [5]), "b": ("bytes_list", [b"x"]), "f": ("float_list", [1.5])}
    fields = pa.record_batch({"n": [7]})
    added = splice([serialized(example(old))], fields)
    replaced = splice([serialized(example(old | {"n": ("int64_list", [6])}))], fields, replace=True)
    renamed = splice([serialized(example(old | {"m": ("int64_list", [7])}))], rename=[("m", "n")])
    parts = [serialized(example({key: value})) for key, value in old.items()]
    onto_parts = splice([b"".join(parts)], fields)
    behind_lists = splice([b"\x12\x00" + serialized(example(old))], fields, "sequence")
    text = parsed_by_tensorflow([*added, *replaced, *renamed, *onto_parts, *behind_lists])
    assert "Data loss" not in text


def test_tensorflow_warns_of_a_field_that_is_shadowed() -> None:
    old = {"a": ("int64_list", [5]), "b": ("bytes_list", [b"x"]), "f": ("float_list", [1.5])}
    shadowed = serialized(example(old | {"n": ("int64_list", [6])}))
    shadowed += serialized(example({"n": ("int64_list", [7])}))
    assert "Data loss" in parsed_by_tensorflow([shadowed])


# Damage


@given(st.lists(strategies.features, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_damage_before_is_damage_after(rows: list[dict[str, Any]], rng: random.Random) -> None:
    old = [serialized(example(row)) for row in rows]
    data = bytearray(file_of(old))
    record = rng.randrange(len(old))
    start = sum(len(payload) + FRAMING for payload in old[:record]) + HEAD
    at = start + rng.randrange(len(old[record]) + 4)
    data[at] ^= 1 << rng.randrange(8)
    fields = pa.record_batch({"a new field": pa.array(range(len(old)), pa.int64())})

    with pytest.raises(_core.KernelError) as caught:
        _core.splice_fields(walked(bytes(data)), fields)
    fault = caught.value.args[0]
    assert (fault.kind, fault.record) == ("data_checksum", record)

    framed, _ = _core.splice_fields(walked(bytes(data)), fields, verify=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "after.tfrecord"
        path.write_bytes(framed.data.to_bytes())
        read = []
        with pytest.raises(tf.errors.DataLossError, match="corrupted record"):
            read.extend(iter(tf.data.TFRecordDataset(str(path))))
        assert len(read) == record
        assert [f.record for f in ps.verify(str(path), index="never").findings] == [record]


def test_a_changed_record_is_verified_even_when_not_asked_for() -> None:
    data = bytearray(file_of([serialized(example({"a": None, "b": None}))]))
    data[-1] ^= 1
    for how in ({"drop": ["a"]}, {"rename": [("a", "c")]}):
        with pytest.raises(_core.KernelError) as caught:
            _core.splice_fields(walked(bytes(data)), verify=False, **how)
        assert caught.value.args[0].kind == "data_checksum"


def test_bytes_that_are_not_a_message_are_a_fault() -> None:
    old = [serialized(example({"a": None})), b"\x0a\x7f"]
    for verify in (False, True):
        with pytest.raises(_core.KernelError) as caught:
            splice(old, pa.record_batch({"n": [1, 2]}), verify=verify)
        fault = caught.value.args[0]
        place = FRAMING + len(old[0]) + HEAD + 2
        assert (fault.kind, fault.record, fault.byte) == ("truncated", 1, place)


# Dropping, renaming, replacing


def edited(features: Any, drop: list[str], rename: list[tuple[str, str]]) -> dict[str, bytes]:
    """The same edit, applied to the message that protobuf read."""
    found = by_key(features)
    moved = {new: found.pop(old) for old, new in rename if old in found}
    return {key: value for key, value in found.items() if key not in drop} | moved


@given(st.data())
def test_drops_and_renames_equal_protobufs(data: st.DataObject) -> None:
    row = data.draw(strategies.features)
    # Features in several messages, with keys that appear twice.
    parts = [row, *data.draw(st.lists(st.dictionaries(st.sampled_from([*row, "k"]), st.none())))]
    old = b"".join(serialized(example(part)) for part in parts)
    known = sorted({key for part in parts for key in part} | {"none has this"})
    chosen = data.draw(st.lists(st.sampled_from(known), unique=True))
    cut = data.draw(st.integers(0, len(chosen)))
    rename = [(name, f"{name}, renamed") for name in chosen[cut:]]
    framed, counts = _core.splice_fields(
        walked(file_of([old])), drop=chosen[:cut], rename=rename, verify=True
    )
    (payload,) = payloads(walked(framed.data))
    before = tf.train.Example.FromString(old)
    after = tf.train.Example.FromString(payload)
    assert by_key(after.features) == edited(before.features, chosen[:cut], rename)
    assert after.HasField("features")
    assert counts == [int(name in before.features.feature) for name in chosen]
    assert not walked(framed.data).verify()


@given(records_and_fields())
def test_a_replaced_field_has_the_new_value_once(
    made: tuple[list[dict[str, Any]], pa.RecordBatch],
) -> None:
    rows, fields = made
    old = [row | dict.fromkeys(fields.schema.names) for row in rows]
    found = splice([serialized(example(row)) for row in old], fields, replace=True)
    for payload, before, added in zip(found, rows, rows_of(fields), strict=True):
        assert tf.train.Example.FromString(payload) == example(before | added)
    assert splice(found, drop=fields.schema.names) == [serialized(example(row)) for row in rows]


@pytest.mark.parametrize("kind", ["example", "sequence"])
def test_odd_messages_are_edited_as_protobuf_reads_them(kind: str) -> None:
    odd = OddExamples(11)
    accepted = 0
    Message = tf.train.Example if kind == "example" else tf.train.SequenceExample
    for _ in range(4000):
        old = odd.example() if kind == "example" else odd.sequence_example()
        try:
            before = Message.FromString(old)
        except Exception:
            continue
        accepted += 1
        (payload,) = splice([old], kind=kind, drop=["a"], rename=[("b", "longer")])
        after = Message.FromString(payload)
        if kind == "example":
            expected = edited(before.features, ["a"], [("b", "longer")])
            assert by_key(after.features) == expected
            continue
        expected = edited(before.context, ["a"], [("b", "longer")])
        assert by_key(after.context) == expected
        lists = {key: serialized(v) for key, v in before.feature_lists.feature_list.items()}
        lists.pop("a", None)
        if "b" in lists:
            lists["longer"] = lists.pop("b")
        found = {key: serialized(v) for key, v in after.feature_lists.feature_list.items()}
        assert found == lists
    assert accepted > 1000
