"""A function of TensorFlow with several names has all of them, and unknown names are named in every namespace."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf
from penstock.tf.missing import MissingSymbolError


def public_spaces() -> dict[str, ModuleType]:
    """Every public namespace of TensorFlow, by its name."""
    spaces: dict[str, ModuleType] = {"tf": tensorflow}
    for space in (left := ["tf"]):
        for name, found in vars(spaces[space]).items():
            symbol = f"{space}.{name}"
            if name.startswith("_") or not isinstance(found, ModuleType):
                continue
            # Not Keras, not the parts of TensorFlow itself, and not the circles of tf.compat.
            of_api = str(vars(found).get("__name__", "")).startswith("tensorflow._api.v2")
            if of_api and "compat.v2" not in symbol and ".v1.compat" not in symbol:
                spaces[symbol] = found
                left.append(symbol)
    return spaces


def public_names() -> dict[str, Any]:
    """Every public function and class of TensorFlow, by its name."""
    return {
        f"{space}.{name}": found
        for space, module in public_spaces().items()
        for name, found in vars(module).items()
        if callable(found) and not name.startswith("_") and not isinstance(found, ModuleType)
    }


def found_here(symbol: str) -> Any:
    place: Any = tf
    for name in symbol.split(".")[1:]:
        place = getattr(place, name, None)
    return place


def test_a_function_is_no_module() -> None:
    found = {symbol: found_here(symbol) for symbol in public_names()}
    assert not [symbol for symbol, here in found.items() if isinstance(here, ModuleType)]


def test_a_function_has_all_of_its_names() -> None:
    names = public_names()
    assert len(names) > 5000
    here = {id(found): symbol for symbol, found in names.items() if found_here(symbol) is not None}
    lacking = [
        f"{symbol} is {here[id(found)]}"
        for symbol, found in names.items()
        if id(found) in here and found_here(symbol) is None
    ]
    assert not lacking


SPACES = [space for space in public_spaces() if found_here(space) is not None]


def test_a_module_that_is_not_tensorflows_is_no_namespace() -> None:
    with pytest.raises(MissingSymbolError, match=r"tf[.]compat[.]v1[.]distributions"):
        tf.compat.v1.distributions  # noqa: B018 -- looking it up is what raises


@pytest.mark.parametrize("space", SPACES)
def test_an_unknown_name_is_named_with_a_hint(space: str) -> None:
    # Where TensorFlow 1's namespace is TensorFlow 2's, its name is, too.
    short = space.replace("compat.v1.", "").rsplit(".", 1)[-1]
    with pytest.raises(MissingSymbolError, match=rf"{short}[.]nothing is not part of") as raised:
        found_here(space).nothing  # noqa: B018 -- looking it up is what raises
    assert "try: " in str(raised.value)


def test_the_namespaces_with_few_names_are_tested_too() -> None:
    assert {"tf.random.experimental", "tf.tpu", "tf.compat.v1.logging"} <= set(SPACES)


FEW_LINES = {
    "sobel_edges": lambda t, x: t.image.sobel_edges(x),
    "rgb_to_yuv": lambda t, x: t.image.rgb_to_yuv(x),
    "yuv_to_rgb": lambda t, x: t.image.yuv_to_rgb(x),
    "rgb_to_yiq": lambda t, x: t.image.rgb_to_yiq(x),
    "yiq_to_rgb": lambda t, x: t.image.yiq_to_rgb(x),
    "down": lambda t, x: t.image.image_gradients(x)[0],
    "right": lambda t, x: t.image.image_gradients(x)[1],
    "clip_by_norm": lambda t, x: t.clip_by_norm(x, 2.0),
    "clip_by_norm of zeros": lambda t, x: t.clip_by_norm(x * 0, 2.0),
    "clip_by_norm over axes": lambda t, x: t.clip_by_norm(x, 0.5, axes=[1, -1]),
    "clip_by_norm over an axis": lambda t, x: t.clip_by_norm(x, 0.5, 2),
    "truncatediv": lambda t, x: t.truncatediv(t.constant([7, -7, 7, -7, 6]), [2, 2, -2, -2, -3]),
    "truncatediv of floats": lambda t, x: t.truncatediv(x, -0.3),
    "truncatediv of bytes": lambda t, x: t.truncatediv(t.constant([200, 7], t.uint8), 3),
    "truncatemod": lambda t, x: t.truncatemod(t.constant([7, -7, 7, -7]), [4, 4, -4, -4]),
    "fingerprint": lambda t, x: t.fingerprint(x),
    "fingerprint of texts": lambda t, x: t.fingerprint(["", "a", "a longer text, of some words"]),
    "fold_in": lambda t, x: t.random.fold_in([1, 2], 3),
    "stateless_fold_in": lambda t, x: t.random.experimental.stateless_fold_in(
        t.constant([1, 2], t.int64), t.constant(3, t.int64)
    ),
}


@pytest.mark.parametrize("name", FEW_LINES)
def test_functions_of_few_lines_are_tensorflows(name: str) -> None:
    images = np.random.default_rng(0).random((2, 5, 7, 3)).astype(np.float32)
    mine, theirs = (FEW_LINES[name](t, t.constant(images)) for t in (tf, tensorflow))
    assert tf.as_dtype(mine.dtype).name == theirs.dtype.name
    np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


REFUSED = {
    "fingerprint of one value": lambda t: t.fingerprint(3),
    "edges of bytes": lambda t: t.image.sobel_edges(t.zeros([1, 4, 4, 3], t.uint8)),
    "gradients of one image": lambda t: t.image.image_gradients(t.zeros([4, 4, 3])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_of_few_lines_refuse_what_tensorflow_refuses(name: str) -> None:
    for t in (tf, tensorflow):
        with pytest.raises((ValueError, t.errors.InvalidArgumentError)):
            REFUSED[name](t)


def test_the_time_is_in_seconds() -> None:
    assert tf.timestamp().dtype == tf.float64
    assert abs(float(tf.timestamp()) - float(tensorflow.timestamp())) < 60
