"""Both dialects of tf.train.Example against what protobuf and TensorFlow made of the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tf_examples as tfe

import penstock.features as f

GOLDEN = Path(__file__).parent.parent / "golden" / "tf_example"


def cases(*names: str) -> list[Any]:
    found = [(n, c) for n in names for c in json.loads((GOLDEN / f"{n}.json").read_text())]
    return [pytest.param(case, id=f"{name}: {case['name']}") for name, case in found]


def batch_of(case: dict[str, Any]) -> tuple[list[bytes], Any]:
    """The payloads of a case and the answer of TensorFlow's batch form."""
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
def test_tensorflow_dialect_answers_as_parse_sequence_example(case: dict[str, Any]) -> None:
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
