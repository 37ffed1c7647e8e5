"""Random chains of verbs, run by TensorFlow and by penstock.tf: the same elements in the same order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as real  # noqa: ICN001 -- tf is whichever of the two

import penstock.tf as ours

Chain = list[tuple[str, Callable[[Any, Any], Any]]]
"""Steps as (text, function of a dataset and the module that `tf` stands for)."""


def plain(value: Any) -> Any:
    """An element as Python values, with the dtypes and shapes of its leaves."""
    if isinstance(value, dict):
        return {key: plain(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if hasattr(value, "as_numpy_iterator"):
        return [plain(each) for each in value]
    array = np.asarray(value.numpy())
    return ("object" if array.dtype.kind in "OS" else array.dtype.name, array.shape, array.tolist())


def sources(rng: random.Random) -> tuple[str, Callable[[Any], Any], str]:
    """(text, function that makes the source, kind of its elements)."""
    kind = rng.choice(["range", "range", "slices", "pairs", "dicts", "texts", "interleaved"])
    n = rng.choice([0, 1, 2, 5, 10, 13, 30])
    if kind == "range":
        return f"range({n})", lambda tf: tf.data.Dataset.range(n), "number"
    if kind == "slices":
        rows = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        return f"slices({n}x3)", lambda tf: tf.data.Dataset.from_tensor_slices(rows), "rows"
    if kind == "pairs":
        pair = np.arange(n), np.arange(n) * 0.5
        return f"pairs({n})", lambda tf: tf.data.Dataset.from_tensor_slices(pair), "pair"
    if kind == "dicts":
        columns = {"b": np.arange(n, dtype=np.int32), "a": [b"x" * (k % 3) for k in range(n)]}
        if not n:
            columns["a"] = np.array([], object)
            columns["b"] = np.array([], np.int32)
            columns["a"] = np.array([], "S1")
        return f"dicts({n})", lambda tf: tf.data.Dataset.from_tensor_slices(columns), "dict"
    if kind == "texts":
        texts = [f"t{k}" for k in range(n + 1)]
        return f"texts({n + 1})", lambda tf: tf.data.Dataset.from_tensor_slices(texts), "text"
    cycle, block = rng.randint(1, 4), rng.randint(1, 3)

    def interleaved(tf: Any) -> Any:
        starts = tf.data.Dataset.range(0, 100 * (n // 4), 100)
        return starts.interleave(
            lambda k: tf.data.Dataset.range(k, k + k // 100 % 4),
            cycle_length=cycle,
            block_length=block,
        )

    return f"interleaved({n // 4}, {cycle}, {block})", interleaved, "number"


def steps(rng: random.Random, kind: str, depth: int) -> tuple[str, Any, str]:
    """One more step: (text, function, kind of the elements after it)."""
    n = rng.choice([0, 1, 2, 3, 7, 40])
    size = rng.choice([1, 2, 3, 5, 16])
    seed = rng.randint(0, 3)
    flag = rng.random() < 0.5
    choices: list[tuple[str, Any, str]] = [
        (f"take({n})", lambda d, tf: d.take(n), kind),
        (f"skip({n})", lambda d, tf: d.skip(n), kind),
        ("take(-1)", lambda d, tf: d.take(-1), kind),
        (f"shard({size}, {n % size})", lambda d, tf: d.shard(size, n % size), kind),
        # TensorFlow refuses repeat(0) right after a shuffle, because of a wrong optimisation.
        (f"repeat({n % 3 + 1})", lambda d, tf: d.repeat(n % 3 + 1), kind),
        (f"shuffle({size}, {seed})", lambda d, tf: d.shuffle(size, seed=seed), kind),
        (f"shuffle({size}, {seed}, {flag})", lambda d, tf: d.shuffle(size, seed, flag), kind),
        (f"shuffle(100, {seed})", lambda d, tf: d.shuffle(100, seed=seed), kind),
        (f"prefetch({n})", lambda d, tf: d.prefetch(n), kind),
        ("cache()", lambda d, tf: d.cache(), kind),
        ("twice", lambda d, tf: d.concatenate(d), kind),
    ]
    batchable = kind in ("number", "rows", "pair", "dict", "text") and depth < 8
    if batchable:
        choices += [
            (f"batch({size}, {flag})", lambda d, tf: d.batch(size, flag), "batch:" + kind)
        ] * 3
        choices.append(
            (
                f"padded({size})",
                lambda d, tf: d.padded_batch(size, drop_remainder=flag),
                "batch:" + kind,
            )
        )
    if kind.startswith("batch:"):
        choices += [("unbatch()", lambda d, tf: d.unbatch(), kind.removeprefix("batch:"))] * 2
        choices.append((f"rebatch({size})", lambda d, tf: d.rebatch(size, flag), kind))
    if kind == "number":
        choices += [
            ("map(+1)", lambda d, tf: d.map(lambda x: x + 1), kind),
            ("map(*2, 2)", lambda d, tf: d.map(lambda x: x * 2, num_parallel_calls=2), kind),
            ("map(dict)", lambda d, tf: d.map(lambda x: {"b": x, "a": x * x}), "numbers"),
            ("filter(odd)", lambda d, tf: d.filter(lambda x: x % 2 == 1), kind),
            (
                f"window({size})",
                lambda d, tf: d.window(size, size, 1, flag).flat_map(lambda w: w),
                kind,
            ),
            (
                f"windows({size})",
                lambda d, tf: d.window(size, 1 + n % 3, 1 + seed % 2, flag).flat_map(
                    lambda w: w.batch(9)
                ),
                "end",
            ),
            ("enumerate", lambda d, tf: d.enumerate(n), "end"),
            ("zip", lambda d, tf: tf.data.Dataset.zip((d, d.skip(1))), "end"),
            ("scan", lambda d, tf: d.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s)), kind),
            ("take_while", lambda d, tf: d.take_while(lambda x: x < 12), kind),
            ("flat_map", lambda d, tf: d.flat_map(lambda x: tf.data.Dataset.range(x % 4)), kind),
            ("unique", lambda d, tf: d.unique(), kind),
        ]
    if kind == "pair":
        choices += [
            ("map(+)", lambda d, tf: d.map(lambda a, b: (b, a)), "end"),
            ("filter(first)", lambda d, tf: d.filter(lambda a, b: a > 3), kind),
        ]
    if kind == "dict":
        choices.append(("map(choose)", lambda d, tf: d.map(lambda e: (e["a"], e["b"])), "end"))
    if kind == "batch:number":
        choices.append(("map(sum)", lambda d, tf: d.map(lambda x: x + x), kind))
    return rng.choice(choices)


def chain_of(seed: int) -> tuple[str, Callable[[Any], Any]]:
    """One random program: its text, and a function that makes its dataset with a module."""
    rng = random.Random(seed)
    text, source, kind = sources(rng)
    chain: Chain = []
    for depth in range(rng.randint(1, 6)):
        said, step, kind = steps(rng, kind, depth)
        chain.append((said, step))
        if kind in ("end", "numbers"):
            break

    def build(tf: Any) -> Any:
        dataset = source(tf)
        for _, step in chain:
            dataset = step(dataset, tf)
        return dataset

    return ".".join([text, *(said for said, _ in chain)]), build


def outcome(tf: Any, build: Callable[[Any], Any], limit: int = 200) -> Any:
    """Two passes over a dataset, and its cardinality; or the class of the error."""
    try:
        dataset = build(tf)
        dataset = dataset.take(limit)
        passes = [[plain(element) for element in dataset] for _ in range(2)]
    except tf.errors.OpError as error:
        return type(error).__name__
    return passes


def check(seeds: range) -> None:
    for seed in seeds:
        text, build = chain_of(seed)
        expected, found = outcome(real, build), outcome(ours, build)
        assert found == expected, f"program {seed}: {text}"


def test_chains_give_what_tensorflow_gives() -> None:
    check(range(80))


@pytest.mark.stress
def test_many_chains_give_what_tensorflow_gives() -> None:
    check(range(80, 5000))


def test_chains_have_the_cardinality_and_the_spec_that_tensorflow_says() -> None:
    for seed in range(1000, 1060):
        text, build = chain_of(seed)
        try:
            dataset = build(real)
        except real.errors.OpError:
            continue
        mine = build(ours)
        if "unique" not in text and "rebatch" not in text:
            assert int(mine.cardinality()) == int(dataset.cardinality()), f"program {seed}: {text}"
        specs = real.nest.flatten(dataset.element_spec)
        try:
            own = ours.nest.flatten(mine.element_spec)
        except ours.errors.InvalidArgumentError:
            continue  # no element, so none can be read
        assert [s.dtype.name for s in own] == [s.dtype.name for s in specs], (
            f"program {seed}: {text}"
        )
        assert [len(s.shape) for s in own] == [len(s.shape) for s in specs], (
            f"program {seed}: {text}"
        )
