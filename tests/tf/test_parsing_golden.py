"""Every golden case of TensorFlow's parsers, in the single form and in the batch form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from parse_cases import outcome, spec_of

from penstock.tf import parsing

GOLDEN = Path(__file__).parent.parent / "golden" / "tf_example"


def cases(*names: str) -> list[Any]:
    found = [(n, c) for n in names for c in json.loads((GOLDEN / f"{n}.json").read_text())]
    return [pytest.param(case, id=f"{name}: {case['name']}") for name, case in found]


def check(expected: Any, run: Any) -> None:
    """Check for the same tensors, or for an error of the same class whose message contains TensorFlow's."""
    found = outcome(run)
    if not isinstance(expected, dict) or "error" not in expected:
        assert found == json.loads(json.dumps(expected))
        return
    kind, message = expected["error"]["type"], expected["error"]["message"]
    if kind == "UnicodeDecodeError":  # TensorFlow's message is not text
        kind, message = "InvalidArgumentError", ""
    assert found["error"]["type"] == kind
    # TensorFlow's words about its graph do not apply to penstock, which also escapes bytes that are not text.
    for end in ("(message not", "\n", " [Op:", "value: '", " do not form ", "; ragged_keys"):
        message = message.partition(end)[0]
    assert message in found["error"]["message"]


@pytest.mark.parametrize("case", cases("wire_edge_cases", "parse_semantics"))
def test_examples_are_parsed_as_tensorflow_parses_them(case: dict[str, Any]) -> None:
    features = {key: spec_of(s, case["name"]) for key, s in (case["spec"] or {}).items()}
    features = features if case["spec"] is not None else None
    if "parse_single_example" in case:
        payload = bytes.fromhex(case["hex"])
        batch = lambda: parsing.parse_example([payload], features)  # noqa: E731
        check(case["parse_example_batch_of_1"], batch)
        check(case["parse_single_example"], lambda: parsing.parse_single_example(payload, features))
    if "parse_example" in case:
        payloads = [bytes.fromhex(text) for text in case["batch_hex"]]
        check(case["parse_example"], lambda: parsing.parse_example(payloads, features))


@pytest.mark.parametrize("case", cases("sequence_example"))
def test_sequence_examples_are_parsed_as_tensorflow_parses_them(case: dict[str, Any]) -> None:
    context = {key: spec_of(s) for key, s in case["context"].items()}
    lists = {key: spec_of(s) for key, s in case["sequence"].items()}
    hexes = [case["hex"]] if isinstance(case["hex"], str) else case["hex"]
    payloads = [bytes.fromhex(text) for text in hexes]
    check(
        case["parse_sequence_example (context, lists, lengths)"],
        lambda: parsing.parse_sequence_example(payloads, context, lists),
    )
    if "parse_single_sequence_example (context, lists)" in case:
        check(
            case["parse_single_sequence_example (context, lists)"],
            lambda: parsing.parse_single_sequence_example(payloads[0], context, lists),
        )
