"""Thousands of random parsing programs, run by penstock.tf and by TensorFlow: the same tensors, or errors
of the same class."""

from __future__ import annotations

import os
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from parse_programs import Programs, SaneRecords, answer, spares_tensorflow

import penstock.tf as ours

sys.path.append(str(Path(__file__).parent.parent / "formats"))
from odd_examples import OddExamples

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
theirs = tf

OURS = ours
STRESS = int(os.environ.get("PENSTOCK_STRESS", "1"))
RUNS = 700 * STRESS
FORMS = ("single", "batch")


class Compared:
    """Counts of the programs that both libraries ran, by their outcome."""

    def __init__(self) -> None:
        self.tally: Counter[str] = Counter()

    def run(self, program: Any, told: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = answer(lambda: program(theirs))
        found = answer(lambda: program(OURS))
        kind = expected[0] if isinstance(expected[0], str) else "read"
        self.tally[kind] += 1
        same = found[0] == expected[0] if kind != "read" else found == expected
        assert same, f"\nours {found}\nTensorFlow {expected}\n{told}"
        if kind != "read":
            self.tally["same words"] += _words(expected[1]) in found[1]

    def check(self, *kinds: str) -> None:
        """Check that there was enough to compare."""
        total = self.tally.total()
        assert all(self.tally[kind] > total / 50 for kind in kinds), self.tally
        # Of several faults, another may be reported first; TensorFlow's core has longer messages.
        errors = total - self.tally["same words"] - self.tally["read"]
        assert self.tally["same words"] > errors / 2, self.tally


def _words(message: str) -> str:
    for end in ("Example: ", "; NodeDef", "\n", "value: '", " do not form ", "; ragged_keys", "\t"):
        message = message.partition(end)[0]
    return message


def of_examples(form: str, made: dict[str, Any], payloads: list[bytes]) -> Any:
    def program(tf: Any) -> Any:
        features = {key: make(tf) for key, make in made.items()}
        if form == "single":
            return tf.io.parse_single_example(payloads[0], features)
        return tf.io.parse_example(tf.constant(payloads), features)

    return program


def of_sequences(form: str, made: tuple[dict[str, Any], ...], payloads: list[bytes]) -> Any:
    def program(tf: Any) -> Any:
        specs = [{key: make(tf) for key, make in part.items()} for part in made]
        if form == "single":
            return tf.io.parse_single_sequence_example(payloads[0], *specs)
        return tf.io.parse_sequence_example(tf.constant(payloads), *specs)

    return program


def examples(compared: Compared, programs: Programs, record: Any, runs: int) -> None:
    rng = programs.rng
    for _ in range(runs):
        made = programs.example()
        payloads = [record() for _ in range(rng.choice([1, 1, 2, 3, 5]))]
        kinds = [make(OURS) for make in made.values()]
        if spares_tensorflow(payloads, kinds):
            continue
        for form in FORMS:
            program = of_examples(form, made, payloads)
            compared.run(program, (form, kinds, list(made), [p.hex() for p in payloads]))


def sequences(compared: Compared, programs: Programs, record: Any, runs: int) -> None:
    rng = programs.rng
    for _ in range(runs):
        context = programs.context() if rng.random() < 0.7 else {}
        lists = programs.lists() if rng.random() < 0.8 or not context else {}
        payloads = [record() for _ in range(rng.choice([1, 1, 2, 3, 5]))]
        kinds = [make(OURS) for make in [*context.values(), *lists.values()]]
        if spares_tensorflow(payloads, kinds):
            continue
        for form in FORMS:
            program = of_sequences(form, (context, lists), payloads)
            told = (form, kinds, list(context), list(lists), [p.hex() for p in payloads])
            compared.run(program, told)


@pytest.mark.parametrize("seed", range(2))
def test_sane_examples_are_parsed_alike(seed: int) -> None:
    compared = Compared()
    examples(compared, Programs(seed), SaneRecords(seed, theirs).example, RUNS)
    compared.check("read", "InvalidArgumentError", "ValueError")


@pytest.mark.parametrize("seed", range(2))
def test_odd_and_damaged_examples_are_parsed_alike(seed: int) -> None:
    compared = Compared()
    odd = OddExamples(100 + seed, negative=False, mutate=0.25)
    examples(compared, Programs(100 + seed), odd.example, RUNS)
    compared.check("read", "InvalidArgumentError")


@pytest.mark.parametrize("seed", range(2))
def test_sane_sequence_examples_are_parsed_alike(seed: int) -> None:
    compared = Compared()
    sequences(compared, Programs(200 + seed), SaneRecords(seed, theirs).sequence_example, RUNS)
    compared.check("read", "InvalidArgumentError")


@pytest.mark.parametrize("seed", range(2))
def test_odd_and_damaged_sequence_examples_are_parsed_alike(seed: int) -> None:
    compared = Compared()
    odd = OddExamples(300 + seed, negative=False, mutate=0.2)
    programs = Programs(300 + seed, strings=False)
    sequences(compared, programs, odd.sequence_example, RUNS)
    compared.check("read", "InvalidArgumentError")
