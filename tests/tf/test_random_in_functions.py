"""Random operations in functions given to datasets draw TensorFlow's numbers, which it draws from a traced function."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

pytestmark = pytest.mark.filterwarnings("ignore:Seed 5 from outer graph")
Program = Callable[[Any], Any]


def _u(t: Any, **options: Any) -> Any:
    return t.random.uniform([], **options)


def _range(t: Any, number: int = 3) -> Any:
    return t.data.Dataset.range(number)


def _unrolled(t: Any) -> Any:
    def several(x: Any) -> Any:
        return t.stack([_u(t) for _ in range(3)])

    return _range(t).map(several)


def _zipped(t: Any) -> Any:
    one = _range(t).map(lambda x: _u(t))
    return t.data.Dataset.zip((one, one))


PROGRAMS: dict[str, Program] = {
    "two operations": lambda t: _range(t).map(lambda x: (_u(t), _u(t))),
    "seeds of operations": lambda t: _range(t).map(lambda x: (_u(t, seed=9), _u(t, seed=9), _u(t))),
    "a Python loop": _unrolled,
    "repeated": lambda t: _range(t).map(lambda x: _u(t)).repeat(3),
    "repeated twice": lambda t: _range(t).map(lambda x: _u(t)).repeat(2).repeat(2),
    "cached": lambda t: _range(t).map(lambda x: _u(t)).cache().repeat(2),
    "the same twice": _zipped,
    "map after map": lambda t: _range(t).map(lambda x: _u(t)).map(lambda x: (x, _u(t))),
    "filtered": lambda t: _range(t, 9).filter(lambda x: _u(t) < 0.5),
    "taken while": lambda t: _range(t, 9).take_while(lambda x: _u(t) < 0.9),
    "scanned": lambda t: _range(t).scan(0.0, lambda state, x: (state, _u(t))),
    "reduced": lambda t: [_range(t).reduce(0.0, lambda state, x: state + _u(t))],
    "shuffled in flat_map": lambda t: _range(t).flat_map(lambda x: _range(t, 5).shuffle(5)),
    "map in flat_map": lambda t: _range(t).flat_map(lambda x: _range(t, 2).map(lambda y: _u(t))),
    "map in interleave": lambda t: _range(t).interleave(
        lambda x: _range(t, 2).map(lambda y: _u(t)), 2
    ),
    "rows": lambda t: _range(t).map(lambda x: t.random.shuffle(t.range(5))),
    "normal": lambda t: _range(t).map(lambda x: t.random.normal([3], stddev=0.5)),
    "crops": lambda t: _range(t).map(
        lambda x: t.image.random_crop(t.reshape(t.range(48), [4, 4, 3]), [2, 2, 3])
    ),
    "a chain of pictures": lambda t: _range(t, 6).map(
        lambda x: t.image.random_brightness(
            t.image.random_flip_up_down(
                t.image.random_flip_left_right(t.reshape(t.range(12.0), [2, 2, 3])), seed=3
            ),
            0.5,
        )
    ),
    "a shuffle made afterwards": lambda t: _range(t, 9).map(lambda x: (x, _u(t))).shuffle(9),
}


def _branches(t: Any) -> Any:
    def augmented(x: Any) -> Any:
        p = _u(t)
        if p > 0.6:
            return t.stack([_u(t), _u(t), p])
        if p > 0.3:
            a = _u(t)
        elif p > 0.1:
            a = _u(t) + 10.0
        else:
            a = 0.0
        for _ in range(2):
            if _u(t) < 0.5:
                a = a + _u(t)
        return t.stack([a, p, _u(t)])

    return _range(t, 12).map(augmented)


def _helped(t: Any) -> Any:
    def helper(p: Any) -> Any:
        if p > 0.5:
            return _u(t)
        return _u(t) + _u(t)

    def augmented(x: Any) -> Any:
        a = helper(_u(t)) if _u(t) > 0.5 else 0.0
        return a, helper(_u(t)), _u(t)

    return _range(t, 12).map(augmented)


def _expressions(t: Any) -> Any:
    def augmented(x: Any) -> Any:
        a = _u(t) if x % 2 == 0 else 1.0
        return a, _u(t)

    return _range(t, 6).map(augmented)


def _nested(t: Any) -> Any:
    def augmented(x: Any) -> Any:
        a = 0.0
        if x > 1:
            if _u(t) > 0.5 and x > 2:
                a = _u(t)
            a = a + _u(t)
        b = t.cond(x % 2 == 0, lambda: _u(t) + _u(t), lambda: _u(t))
        return a, b, t.map_fn(lambda y: y * _u(t), t.range(3.0)), _u(t)

    return _range(t, 9).map(augmented)


def _functions(t: Any) -> Any:
    @t.function
    def first(x: Any) -> Any:
        return x + _u(t)

    @t.function(reduce_retracing=True)
    def second(x: Any) -> Any:
        return x * _u(t) + _u(t)

    return _range(t, 4).map(lambda x: (_u(t), second(first(1.0)), _u(t)))


def _named_tests(t: Any) -> Any:
    """Tests of names, calls, `not` and `|`, whose instructions Python places elsewhere than those of comparisons."""

    def below(limit: float) -> Any:
        return _u(t) < limit

    def augmented(x: Any) -> Any:
        a = t.cast(x, t.float32)
        p, q = below(0.5), below(0.5)
        if p:
            a = a + _u(t)
        if not q:
            a = a + _u(t)
        if below(0.3) | False:
            a = a + 2 * _u(t)
        elif below(0.6):
            a = a - _u(t)
        if p & q:
            return a + 10 * _u(t)
        for _ in range(2):
            z = below(0.5)
            if z:
                a = a + _u(t)
        b = _u(t) if q else 2 * _u(t)
        return a + b * _u(t)

    return _range(t, 12).map(augmented)


def _given_back(t: Any) -> Any:
    """A function whose first calls return their arguments, by chance."""

    def augmented(x: Any, y: Any) -> Any:
        if _u(t) > 0.9:
            x = x + 100
        return x, t.cond(_u(t) > 0.9, lambda: -y, lambda: y)

    return t.data.Dataset.zip((_range(t, 40), _range(t, 40))).map(augmented)


PROGRAMS |= {
    "branches": _branches,
    "tests of names": _named_tests,
    "arguments given back": _given_back,
    "branches of helpers": _helped,
    "conditional expressions": _expressions,
    "nested branches, cond and map_fn": _nested,
    "decorated functions": _functions,
    "a branch without a tensor": lambda t: _range(t).map(lambda x: _u(t) if t else x),
}


def found(t: Any, program: Program, seed: int | None = 5) -> list[np.ndarray]:
    """Two iterations of a program's dataset, and a number that is drawn afterwards."""
    t.random.set_seed(seed)
    try:
        made = program(t)
        runs = [list(made), list(made)] if not isinstance(made, list) else [made]
        after = [] if seed is None else [_u(t)]
        return [np.asarray(leaf) for leaf in tensorflow.nest.flatten([runs, after])]
    finally:
        t.random.set_seed(None)


def assert_same(program: Program, seed: int | None = 5) -> None:
    mine, theirs = found(tf, program, seed), found(tensorflow, program, seed)
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PROGRAMS)
def test_functions_draw_the_numbers_of_tensorflows_trace(name: str) -> None:
    assert_same(PROGRAMS[name])


def test_a_seed_of_an_operation_alone_gives_tensorflows_numbers() -> None:
    assert_same(_seeded, None)


def _seeded(t: Any) -> Any:
    return _range(t).map(lambda x: (_u(t, seed=9), t.random.uniform([2], seed=4)))


def test_specs_and_placeholders_draw_nothing() -> None:
    def drawn(looks: bool) -> list[float]:
        tf.random.set_seed(3)
        dataset = _range(tf).map(lambda x: _u(tf)).shuffle(3)
        if looks:
            assert dataset.element_spec.dtype == tf.float32
        values = [float(x) for x in dataset]
        tf.random.set_seed(None)
        return values

    assert drawn(True) == drawn(False)


def test_the_seed_of_the_program_is_that_of_the_call_of_map() -> None:
    def late(t: Any) -> Any:
        made = _range(t).map(lambda x: _u(t))
        t.random.set_seed(77)
        return made

    assert_same(late)


def test_without_seeds_each_iteration_draws_new_numbers() -> None:
    tf.random.set_seed(None)
    dataset = _range(tf, 8).map(lambda x: _u(tf))
    assert [float(x) for x in dataset] != [float(x) for x in dataset]


def test_sizes_that_depend_on_random_numbers_are_unknown() -> None:
    dataset = _range(tf).map(lambda x: tf.boolean_mask(tf.range(9), tf.random.uniform([9]) > 0.5))
    assert dataset.element_spec.shape.as_list() == [None]


def _by_generator(x: Any) -> Any:
    return x + 1 if GENERATOR.uniform([]) < 0.1 else x


GENERATOR = tf.random.Generator.from_seed(1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1 if _u(tf) < 0.1 else x,
        lambda x: tf.cond(_u(tf, seed=3) < 0.1, lambda: x + 1, lambda: x),
        lambda x: x + 1 if random.random() < 0.1 else x,
        lambda x: x + 1 if np.random.rand() < 0.1 else x,  # noqa: NPY002
        _by_generator,
    ],
)
def test_a_function_that_draws_is_called_for_each_record(function: Any) -> None:
    # The first call, which finds out whether a function only chooses, mostly returns its argument here.
    dataset = _range(tf, 200)
    changed = [sum(int(x) for x in dataset.map(function)) - 199 * 100 for _ in range(5)]
    assert all(2 <= number <= 60 for number in changed), changed
