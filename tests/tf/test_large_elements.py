"""Batches of elements of many bytes, which are copied into their batch one by one."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import penstock.tf as tf

LARGE, SMALL = (128, 200, 3), (2, 3, 3)
COUNT = 10


def image(number: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, shape, np.uint8)


def dataset(shape: tuple[int, ...]) -> Any:
    """Elements with an image of this shape, a number, and a string."""

    def element(number: Any) -> dict[str, Any]:
        found = tf.numpy_function(lambda n: image(int(n), shape), [number], tf.uint8)
        return {"image": found, "pair": (number, tf.strings.as_string(number))}

    return tf.data.Dataset.range(COUNT).map(element)


@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("drops", [False, True])
def test_a_batch_has_its_elements_in_order_whatever_their_size(
    shape: tuple[int, ...], drops: bool
) -> None:
    batches = list(dataset(shape).batch(4, drop_remainder=drops))
    assert [len(batch["image"]) for batch in batches] == ([4, 4] if drops else [4, 4, 2])
    for first, batch in zip(range(0, COUNT, 4), batches, strict=False):
        numbers = range(first, first + len(batch["image"]))
        np.testing.assert_array_equal(batch["image"], [image(n, shape) for n in numbers])
        assert type(batch["image"]) is tf.Tensor and batch["image"].dtype == tf.uint8
        assert batch["pair"][0].numpy().tolist() == list(numbers)
        assert batch["pair"][1].numpy().tolist() == [b"%d" % n for n in numbers]


@pytest.mark.parametrize("size", [3, 4])
def test_batches_are_divided_anew(size: int) -> None:
    images = dataset(LARGE).map(lambda element: element["image"]).batch(4).rebatch(size)
    found = list(images)
    assert [len(batch) for batch in found][:2] == [size, size]
    np.testing.assert_array_equal(np.concatenate(found), [image(n, LARGE) for n in range(COUNT)])


@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("odd", [1, 3])
@pytest.mark.parametrize("what", ["shapes", "types"])
def test_elements_of_different_shapes_or_types_are_named(
    shape: tuple[int, ...], odd: int, what: str
) -> None:
    other = [shape[0] - 1, *shape[1:]]
    numbers = tf.data.Dataset.range(COUNT)
    if what == "shapes":
        made = numbers.map(lambda n: (n, tf.zeros(other if n == odd else shape, tf.uint8)))
        says = f"had shape {list(shape)} and element {odd} had shape {other}."
    else:
        made = numbers.map(lambda n: (n, tf.zeros(shape, tf.int32 if n == odd else tf.uint8)))
        says = "<dtype: 'uint8'> and <dtype: 'int32'>."
    batches = iter(made.batch(4))
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        next(batches)
    assert "Cannot batch tensors" in str(error.value) and "component 1" in str(error.value)
    assert says in str(error.value)
    assert next(batches)[0].numpy().tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=["large", "small"])
def test_after_an_error_of_an_element_the_next_batch_follows(shape: tuple[int, ...]) -> None:
    def element(number: Any) -> Any:
        tf.debugging.assert_none_equal(number, np.int64(1))
        return tf.fill(shape, number)

    batches = iter(tf.data.Dataset.range(COUNT).map(element).batch(3))
    with pytest.raises(tf.errors.InvalidArgumentError):
        next(batches)
    assert next(batches).numpy()[:, 0, 0, 0].tolist() == [2, 3, 4]


def test_an_element_is_not_held_until_its_batch_is_complete() -> None:
    held: list[Any] = []
    most = 0

    def element(number: Any) -> Any:
        nonlocal most
        most = max(most, sum(one() is not None for one in held))
        made = tf.zeros(LARGE)
        held.append(weakref.ref(made))
        return made

    for batch in tf.data.Dataset.from_tensor_slices(np.arange(64)).map(element).batch(32):
        assert batch.shape == (32, *LARGE)
    assert len(held) >= 64
    assert most <= 4
