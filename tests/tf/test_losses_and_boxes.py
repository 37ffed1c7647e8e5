"""Losses, boxes, patches and generators compared with TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

DRAWN = np.random.default_rng(5)
LOGITS = DRAWN.normal(0, 4, [6, 5]).astype(np.float32)
LABELS = DRAWN.random([6, 5]).astype(np.float32)
PICTURES = DRAWN.random([2, 20, 24, 3]).astype(np.float32)
CORNERS = DRAWN.random([40, 4]).astype(np.float32)
SCORES = DRAWN.random(40).astype(np.float32).round(1)
SPREAD = np.random.default_rng(6).random([2, 14, 5]).astype(np.float32)
OUTLINES = DRAWN.uniform(-0.3, 1.3, [2, 14, 4]).astype(np.float32)


def combined(t: Any, **options: Any) -> Any:
    """The four results of combined_non_max_suppression, joined."""
    found = t.image.combined_non_max_suppression(OUTLINES[:, :, None], SPREAD, 3, 18, **options)
    return t.concat([t.reshape(t.cast(part, t.float32), [-1]) for part in found], 0)


FLOATS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda t: t.nn.softmax_cross_entropy_with_logits(LABELS, LOGITS),
    "softmax over rows": lambda t: t.nn.softmax_cross_entropy_with_logits(LABELS, LOGITS, axis=0),
    "softmax of one row of labels": lambda t: t.nn.softmax_cross_entropy_with_logits(
        LABELS[:1], LOGITS
    ),
    "sparse": lambda t: t.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 4, 2, 3, 0], LOGITS),
    "sparse of three dimensions": lambda t: t.nn.sparse_softmax_cross_entropy_with_logits(
        t.constant([[0, 1, 4], [2, 3, 0]], t.int64), LOGITS.reshape(2, 3, 5)
    ),
    "sigmoid": lambda t: t.nn.sigmoid_cross_entropy_with_logits(LABELS, LOGITS * 30),
    "sigmoid of doubles": lambda t: t.nn.sigmoid_cross_entropy_with_logits(
        LABELS.astype(np.float64), LOGITS.astype(np.float64)
    ),
    "weighted": lambda t: t.nn.weighted_cross_entropy_with_logits(LABELS, LOGITS, 3.5),
    "weighted by class": lambda t: t.nn.weighted_cross_entropy_with_logits(
        LABELS, LOGITS, LABELS[0]
    ),
    "ssim": lambda t: t.image.ssim(PICTURES, PICTURES**1.5, 1.0),
    "ssim of bytes": lambda t: t.image.ssim(
        (PICTURES * 255).astype(np.uint8), (PICTURES * 200).astype(np.uint8), 255
    ),
    "ssim of one picture": lambda t: t.image.ssim(
        PICTURES[0], PICTURES[1], 1.0, filter_size=5, filter_sigma=1.0, k1=0.02, k2=0.05
    ),
    "ssim of windows": lambda t: t.image.ssim(PICTURES, PICTURES * 0.9, 1.0, return_index_map=True),
}
EXACT: dict[str, Callable[[Any], Any]] = {
    "suppression": lambda t: t.image.non_max_suppression(CORNERS, SCORES, 40),
    "suppression with thresholds": lambda t: t.image.non_max_suppression(
        CORNERS, SCORES, t.constant(7), 0.2, 0.3
    ),
    "suppression of everything": lambda t: t.image.non_max_suppression(CORNERS, SCORES, 40, 0.0),
    "suppression of empty boxes": lambda t: t.image.non_max_suppression(
        [[0.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]], [0.3, 0.2, 0.1], 3
    ),
    "suppression of nothing": lambda t: t.image.non_max_suppression(CORNERS[:0], SCORES[:0], 3),
    "suppression in classes": combined,
    "suppression in classes, padded": lambda t: combined(t, pad_per_class=True),
    "suppression in classes, with thresholds": lambda t: combined(
        t, iou_threshold=0.1, score_threshold=0.4, clip_boxes=False
    ),
    "outlines": lambda t: t.image.draw_bounding_boxes(PICTURES, OUTLINES, [[1.0, 0, 0], [0, 1, 0]]),
    "outlines in TensorFlow's colours": lambda t: t.image.draw_bounding_boxes(
        PICTURES, OUTLINES, None
    ),
    "outlines in grey": lambda t: t.image.draw_bounding_boxes(PICTURES[..., :1], OUTLINES, None),
    "patches": lambda t: t.image.extract_patches(
        PICTURES, [1, 5, 6, 1], [1, 5, 6, 1], [1, 1, 1, 1], "VALID"
    ),
    "patches with gaps": lambda t: t.image.extract_patches(
        PICTURES, [1, 3, 2, 1], [1, 2, 3, 1], [1, 2, 3, 1], "SAME"
    ),
    "classes": lambda t: t.random.categorical(LOGITS, 6, seed=3),
    "classes of impossible logits": lambda t: t.random.categorical(
        [[float("-inf"), 0.0, 1.0]], 9, t.int32, seed=3
    ),
}


@pytest.mark.parametrize("name", FLOATS)
def test_losses_and_similarities_are_tensorflows(name: str) -> None:
    mine, theirs = FLOATS[name](tf), FLOATS[name](tensorflow)
    assert mine.dtype == theirs.dtype.as_numpy_dtype
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=2e-5, atol=5e-6)


@pytest.mark.parametrize("name", EXACT)
def test_boxes_patches_and_classes_are_tensorflows(name: str) -> None:
    for t in (tf, tensorflow):
        t.random.set_seed(8)
    mine, theirs = EXACT[name](tf), EXACT[name](tensorflow)
    tf.random.set_seed(None)
    assert mine.dtype == theirs.dtype.as_numpy_dtype
    np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.nn.sigmoid_cross_entropy_with_logits(LABELS[:2], LOGITS),
        lambda t: t.nn.weighted_cross_entropy_with_logits(LABELS[:2], LOGITS, 2.0),
        lambda t: t.nn.softmax_cross_entropy_with_logits(LABELS[:, :3], LOGITS),
        lambda t: t.nn.sparse_softmax_cross_entropy_with_logits([0, 1], LOGITS),
        lambda t: t.nn.sparse_softmax_cross_entropy_with_logits([9, 0, 0, 0, 0, 0], LOGITS),
        lambda t: t.image.non_max_suppression(CORNERS, SCORES[:3], 3),
        lambda t: t.image.non_max_suppression(CORNERS, SCORES, 3, 1.5),
        lambda t: t.image.draw_bounding_boxes(PICTURES[0], OUTLINES, None),
        lambda t: t.image.ssim(PICTURES[:, :5], PICTURES[:, :5], 1.0),
        lambda t: t.image.ssim(PICTURES, PICTURES[:, :, :12], 1.0),
        lambda t: t.random.categorical([0.0, 1.0], 3),
    ],
)
def test_invalid_arguments_raise_the_same_errors(program: Any) -> None:
    with pytest.raises((ValueError, tensorflow.errors.InvalidArgumentError)) as theirs:
        program(tensorflow)
    expected = getattr(tf.errors, theirs.type.__name__, theirs.type)
    with pytest.raises(expected):
        program(tf)


def _everything(t: Any) -> list[Any]:
    generator = t.random.Generator.from_seed(123)
    found = [
        generator.normal([2, 3]),
        generator.uniform([4], maxval=1000, dtype=t.int32),
        generator.uniform([3], -1.0, 1.0),
        generator.uniform_full_int([2], "uint64"),
        generator.truncated_normal([9]),
        generator.make_seeds(2),
        generator.state.numpy(),
        generator.key,
    ]
    found += [one.normal([2]) for one in generator.split(2)]
    generator.skip(3)
    found += [generator.uniform([1], dtype=t.float64), generator.state.numpy()]
    generator.reset_from_seed(-4)
    found += [generator.state.numpy(), t.random.Generator.from_seed([7, 8]).uniform([2])]
    found.append(t.random.Generator.from_state([1, 2, 3], "philox").normal([3]))
    dataset = t.data.Dataset.range(4).map(lambda x: generator.make_seeds(2)[0])
    return [
        *found,
        dataset.element_spec.shape.as_list(),
        *dataset,
        *dataset,
        generator.state.numpy(),
    ]


def test_generators_draw_tensorflows_numbers_also_in_datasets() -> None:
    for mine, theirs in zip(_everything(tf), _everything(tensorflow), strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-5)


def test_a_parser_that_asks_a_generator_is_not_counted_as_a_draw() -> None:
    def drawn(t: Any) -> list[Any]:
        generator = t.random.Generator.from_seed(2)
        example = t.train.Example().SerializeToString()
        spec = {"n": t.io.FixedLenFeature([], t.int64, 3)}

        def read(record: Any) -> Any:
            seed = generator.make_seeds(1)[0]
            return t.io.parse_single_example(record, spec)["n"], seed

        made = t.data.Dataset.from_tensor_slices([example] * 3).map(read)
        return [seed.numpy().tolist() for _, seed in made]

    assert drawn(tf) == drawn(tensorflow)


def test_other_algorithms_of_generators_are_refused() -> None:
    with pytest.raises(ValueError, match="philox"):
        tf.random.Generator.from_seed(1, alg="threefry")
