"""Hints of penstock.tf in models of Keras. One process has them all, because importing Keras takes seconds."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

from steps import Case, Cases, Make

import penstock as ps

PROGRAM = """
import json
import numpy as np
import penstock.tf as tf

keras, jax = tf.keras, __import__("jax")
said, x = {}, np.arange(6.0, dtype="float32").reshape(2, 3)
image = np.arange(48, dtype="float32").reshape(1, 4, 4, 3)
rows = np.array([[2], [0]], "int32")

def take(x):
    return keras.ops.take_along_axis(x, rows, axis=1)

def refused(call):
    try:
        call()
    except Exception as error:
        said[error.hint] = True

for refuses, advised, wanted in (
    (lambda x: tf.where(x > 2), lambda x: tf.where(x > 2, x, 0.0), np.where(x > 2, x, 0)),
    (lambda x: tf.gather(x, rows, batch_dims=1), take, [[2], [3]]),
    (lambda x: tf.strings.as_string(x), lambda x: keras.ops.floor(x / 2), np.floor(x / 2)),
):
    refused(lambda: jax.jit(refuses)(x))
    assert np.allclose(jax.jit(advised)(x), wanted)

refused(lambda: jax.jit(lambda i: tf.image.resize(i, [2, 4], preserve_aspect_ratio=True))(image))
resized = jax.jit(lambda i: keras.ops.image.resize(i, (2, 2), data_format="channels_last"))(image)
assert resized.shape == (1, 2, 2, 3)

refused(lambda: jax.jit(lambda x: x + tf.random.uniform([]))(x))

class Noise(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x):
        return x + keras.random.uniform((), seed=self.seeds)

model = keras.Sequential([Noise()])
assert not np.allclose(model.predict(x, verbose=0), model.predict(x, verbose=0))

refused(lambda: keras.layers.experimental)
assert keras.layers.Rescaling(2.0)(x).shape == (2, 3)
print(json.dumps(list(said)))
"""


@functools.cache
def _said() -> list[str]:
    """The hints of all refused calls; the program asserts that following them works."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def _case(hint: str) -> Make:
    def fails() -> None:
        if hint in _said():
            raise ps.PenstockError("in the other process", hint=hint)

    def make() -> Case:
        return Case(fails, _said, hint)

    make.__name__ = hint[:30]
    return make


CASES: Cases = {
    **{
        repr(hint): _case(hint)
        for hint in (
            "tf.where(condition, x, y)",
            "keras.ops.take_along_axis",
            "keras.ops.image.resize",
            "the function of keras.ops for this, or do it in Dataset.map",
            "keras.random, with a keras.random.SeedGenerator that the layer keeps",
        )
    },
    "_NOW.get(symbol) or found or f'one of dir({self._symbol})'": _case(
        "tf.keras.layers, which has these layers now"
    ),
}
