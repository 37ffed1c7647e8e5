"""Both dialects of tf.train.Example, compared with the results of protobuf and TensorFlow for the same bytes."""

from __future__ import annotations

import collections
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tf_examples as tfe
from google.protobuf.message import DecodeError
from odd_examples import OddExamples
from protobuf_example import Example

import penstock.features as f

GOLDEN = Path(__file__).parent.parent / "golden" / "tf_example"
STRESS = int(os.environ.get("PENSTOCK_STRESS", "1"))
FUZZ_RUNS = 100_000 * STRESS
TENSORFLOW_RUNS = 3_000 * STRESS


def cases(*names: str) -> list[Any]:
    found = [(n, c) for n in names for c in json.loads((GOLDEN / f"{n}.json").read_text())]
    return [pytest.param(case, id=f"{name}: {case['name']}") for name, case in found]


def batch_of(case: dict[str, Any]) -> tuple[list[bytes], Any]:
    """The payloads of a case, and TensorFlow's result for them as a batch."""
    for key in ("parse_example_batch_of_1", "parse_example"):
        if key in case:
            break
    else:
        key = "parse_sequence_example (context, lists, lengths)"
    hexes = case.get("batch_hex", case.get("hex"))
    hexes = [hexes] if isinstance(hexes, str) else hexes
    return [bytes.fromhex(text) for text in hexes], case[key]


@pytest.mark.parametrize("case", cases("wire_edge_cases", "parse_semantics"))
def test_tensorflow_dialect_answers_as_parse_example(case: dict[str, Any]) -> None:
    payloads, expected = batch_of(case)
    if "error" in expected:
        with pytest.raises(tfe.REFUSED):
            tfe.decode(payloads, tfe.schema_of(case), "tensorflow")
        return
    schema = tfe.schema_of(case)
    found = tfe.tensors(tfe.decode(payloads, schema, "tensorflow"), schema)
    assert found == golden(expected)


@pytest.mark.parametrize("case", cases("sequence_example"))
def test_tensorflow_dialect_answers_as_parse_sequence_example(
    case: dict[str, Any],
) -> None:
    payloads, expected = batch_of(case)
    if "error" in expected:
        with pytest.raises(tfe.REFUSED):
            sequence_tensors(case, payloads)
        return
    context, lists, lengths = expected
    found, found_lengths = sequence_tensors(case, payloads)
    assert found == golden(context | lists)
    assert found_lengths == {key: tensor["dense"] for key, tensor in lengths.items()}


def sequence_tensors(case: dict[str, Any], payloads: list[bytes]) -> tuple[Any, Any]:
    schema = tfe.schema_of(case)
    plan = tfe.DecodePlan(tfe.plan_fields(schema, "tensorflow_sequence"), "tensorflow_sequence")
    batch = plan.decode(tfe.frames(payloads))
    dense = [
        k for k, x in schema.items() if isinstance(getattr(x, "feature", 0), f.FixedLenSequence)
    ]
    lengths = {key: [len(row) for row in batch.column(key).to_pylist()] for key in dense}
    return tfe.tensors(batch, schema), lengths


def golden(tensors: dict[str, Any]) -> dict[str, Any]:
    parts = ("dense", "ragged")
    for tensor in tensors.values():
        for part in parts:
            if part in tensor:
                tensor[part] = tfe.value(tensor[part])
        if "sparse" in tensor:
            tensor["sparse"]["values"] = tfe.value(tensor["sparse"]["values"])
    return tensors


@pytest.mark.parametrize("case", cases("wire_edge_cases", "parse_semantics"))
def test_protobuf_dialect_answers_as_example_from_string(case: dict[str, Any]) -> None:
    if "Example.FromString" not in case:
        return
    payloads, expected = [bytes.fromhex(case["hex"])], case["Example.FromString"]
    if "error" in expected:
        schema = {key: f.VarLen(spec["dtype"]) for key, spec in case["spec"].items()}
        with pytest.raises(tfe.REFUSED):
            tfe.decode(payloads, schema, "protobuf")
        return
    types = {"int64_list": "int64", "float_list": "float32", "bytes_list": "bytes"}
    schema = {k: f.VarLen(types[v[0]]) for k, v in expected.items() if v is not None}
    unset = [key for key, v in expected.items() if v is None]
    schema |= {key: f.VarLen("int64") for key in unset}
    row = tfe.decode(payloads, schema, "protobuf").to_pylist()[0]
    assert tfe.plain(row) == {k: v if v is None else tfe.value(v[1]) for k, v in expected.items()}


# Found by comparing with protobuf: bytes that do not affect the result are parsed all the same


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0a0b0a090a01611a0012017f", id="value of an entry with an unknown field"),
        pytest.param("0a0d0a0b0a0161120161120312017f", id="first of two values in an entry"),
        pytest.param("0a0a0a080a01ff0a0161 1200", id="first of two keys in an entry"),
        pytest.param("0a0e0a0c0a01611207 1a030a0180 0a00", id="kind that another replaces"),
        pytest.param(
            "0a130a0a0a016112051a030a01800a050a01611200",
            id="entry that another replaces",
        ),
    ],
)
def test_protobuf_dialect_refuses_malformed_bytes_that_do_not_count(text: str) -> None:
    payload = bytes.fromhex(text)
    with pytest.raises(DecodeError):
        Example.FromString(payload)
    with pytest.raises(tfe.REFUSED):
        tfe.decode([payload], {"a": f.VarLen("int64")}, "protobuf")
    assert tfe.frames([payload]).infer()["num_broken"] == 1


def test_floats_keep_their_bits_in_both_dialects() -> None:
    words = bytes.fromhex("0100c07f0000807f0000008001000000ffffffff")
    unpacked = b"".join(b"\x0d" + words[at : at + 4] for at in range(0, len(words), 4))
    for values in (field(1, words), unpacked):
        payload = field(1, field(1, field(1, b"a") + field(2, field(2, values))))
        for dialect in ("protobuf", "tensorflow"):
            found = tfe.decode([payload], {"a": f.VarLen("float32")}, dialect).column("a")
            assert found.values.buffers()[1].to_pybytes()[: len(words)] == words


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


# Compared with the reference programs themselves, on bytes that no sane program would write


def test_protobuf_dialect_agrees_with_protobuf_on_odd_examples() -> None:
    odd, types = OddExamples(20), {"int64_list": "int64", "float_list": "float32"}
    accepted: dict[Any, list[Any]] = collections.defaultdict(list)
    refused: list[bytes] = []
    for _ in range(FUZZ_RUNS):
        payload = odd.example()
        try:
            features = Example.FromString(payload).features.feature
        except DecodeError:
            refused.append(payload)
            continue
        row = {key: value.WhichOneof("kind") for key, value in features.items()}
        found = {k: list(getattr(features[k], w).value) if w else None for k, w in row.items()}
        accepted[tuple(sorted(row.items(), key=str))].append((payload, found))
    for kinds, rows in accepted.items():
        schema = {key: f.VarLen(types.get(kind, "bytes")) for key, kind in kinds}
        if not schema:
            continue
        batch = tfe.decode([payload for payload, _ in rows], schema, "protobuf")
        for (payload, expected), got in zip(rows, batch.to_pylist(), strict=True):
            assert tfe.plain(got) == tfe.plain(expected), payload.hex()
    # Decoding skips features that are not requested; inference reads everything.
    assert tfe.frames(refused).infer()["num_broken"] == len(refused)


EXAMPLE_SCHEMAS: list[dict[str, Any]] = [
    {"a": f.VarLen("int64"), "b": f.VarLen("string"), "c": f.VarLen("float32")},
    {"a": f.VarLen("float32"), "": f.VarLen("int64")},
    {"a": f.FixedLen([2], "int64", [7, 8]), "b": f.FixedLen([], "string", "d")},
    {
        "a": f.FixedLenSequence([2], "int64", True),
        "b": f.FixedLenSequence([], "string", True),
    },
    {
        "a": f.Ragged("int64"),
        "b": f.Ragged("string"),
        "c": f.FixedLenSequence([], "float32", True),
    },
    {"a": f.FixedLen([], "int64"), "b": f.FixedLen([2], "bytes")},
    {"a": f.FixedLen([0], "int64")},
    {"c": f.FixedLen([2], "float32", [0, 0])},
]
SEQUENCE_SCHEMAS: list[dict[str, Any]] = [
    {
        "context/a": f.VarLen("int64"),
        "feature_lists/a": f.Sequence(f.VarLen("int64")),
        "context/c": f.VarLen("float32"),
        "feature_lists/c": f.Sequence(f.VarLen("float32")),
        "b": f.Sequence(f.Ragged("string")),
    },
    {
        "context/a": f.FixedLen([], "int64", 3),
        "feature_lists/a": f.Sequence(f.FixedLenSequence([], "int64", True)),
        "b": f.Sequence(f.FixedLenSequence([], "string", True)),
    },
    {
        "b": f.FixedLen([], "string", "q"),
        "a": f.Sequence(f.FixedLenSequence([2], "int64", True)),
    },
    {"a": f.Sequence(f.FixedLenSequence([], "int64"))},
    {"a": f.Ragged("int64"), "c": f.FixedLen([2], "float32", [1, 2])},
]


@pytest.mark.parametrize("sequence", [False, True], ids=["Example", "SequenceExample"])
def test_tensorflow_dialect_agrees_with_tensorflow_on_odd_examples(
    sequence: bool,
) -> None:
    from tensorflow_oracle import Parser

    schemas = SEQUENCE_SCHEMAS if sequence else EXAMPLE_SCHEMAS
    dialect = "tensorflow_sequence" if sequence else "tensorflow"
    plans = [tfe.DecodePlan(tfe.plan_fields(s, dialect), dialect) for s in schemas]
    parsers = [Parser(schema, sequence=sequence) for schema in schemas]
    odd = OddExamples(21, negative=False, mutate=0.2)
    tally: collections.Counter[str] = collections.Counter()
    for run in range(TENSORFLOW_RUNS):
        payload = odd.sequence_example() if sequence else odd.example()
        at = run % len(schemas)
        if spares_tensorflow(payload, schemas[at]):
            continue
        try:
            found: Any = tfe.tensors(plans[at].decode(tfe.frames([payload])), schemas[at])
        except tfe.REFUSED:
            found = "refused"
        assert found == parsers[at](payload), (payload.hex(), schemas[at])
        tally["refused" if found == "refused" else "read"] += 1
    assert min(tally.values()) > TENSORFLOW_RUNS / 10


def spares_tensorflow(payload: bytes, schema: dict[str, Any]) -> bool:
    """Whether TensorFlow must not read this: for a long length it would reserve gigabytes, and it writes unpacked
    floats past the end of a dense tensor."""
    dense = any(isinstance(x, f.FixedLen) and x.dtype == pa.float32() for x in schema.values())
    return bool(re.search(rb"[\x80-\xff]{4}", payload)) or (dense and b"\x0d" in payload)
