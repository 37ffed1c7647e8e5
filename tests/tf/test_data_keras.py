"""Keras accepts datasets directly, on torch and, in the long tests, on JAX, each in a separate process. Keras's own code
is the same on both."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys, warnings
sys.modules["tensorflow"] = None  # it is not to be had
import numpy as np
import penstock.tf as tf
from penstock.tf import from_keras
assert "keras" not in sys.modules
keras = tf.keras
assert keras.Model is sys.modules["keras"].Model and tf.optimizers is keras.optimizers
assert keras.optimizers.Adam is sys.modules["keras"].optimizers.Adam and tf.keras is keras
assert all(hasattr(tf, name) for name in from_keras.NAMES)
assert tf.compat.v2.keras is tf.compat.v1.keras is keras

rng = np.random.default_rng(0)
x = rng.random((64, 3)).astype("float32")
y = x.sum(axis=1, keepdims=True)
pairs = tf.data.Dataset.from_tensor_slices((x, y))
data = pairs.shuffle(64, seed=1).batch(16)
assert isinstance(data, tf.data.Dataset)

def model():
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return made

one = model()
history = one.fit(data, epochs=4, validation_data=pairs.batch(16), verbose=0)
assert history.params["steps"] == 4 and len(history.history["val_loss"]) == 4
assert history.history["loss"][-1] < history.history["loss"][0] / 2
assert one.evaluate(data, verbose=0) < history.history["loss"][0]
assert np.allclose(one.predict(pairs.batch(10), verbose=0), one.predict(x, verbose=0), atol=1e-5)

# The same batches from arrays give the same weights.
two, three = model(), model()
two.fit(pairs.batch(16), epochs=2, verbose=0)
three.fit(x, y, batch_size=16, shuffle=False, epochs=2, verbose=0)
for a, b in zip(two.get_weights(), three.get_weights()):
    assert np.allclose(a, b, atol=1e-6)

# Without an end, and of unknown length.
history = one.fit(data.repeat(), epochs=3, steps_per_epoch=5, validation_data=data.repeat(), validation_steps=2, verbose=0)
assert history.params["steps"] == 5 and len(history.history["val_loss"]) == 3
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    history = one.fit(pairs.filter(lambda a, b: a[0] >= 0).batch(16), epochs=3, verbose=0)
assert len(history.history["loss"]) == 3

# Weights as a third component, and dicts of inputs.
one.fit(pairs.map(lambda a, b: (a, b, np.float32(1))).batch(16), verbose=0)
inputs = keras.Input((3,), name="x")
named = keras.Model({"x": inputs}, keras.layers.Dense(1)(inputs))
named.compile("sgd", "mse")
named.fit(pairs.map(lambda a, b: ({"x": a}, b)).batch(16), verbose=0)

# Weights of classes give the same model as Keras's own weights of arrays, for numbers, columns and one-hot rows.
kinds = (np.arange(64) * 7 // 3) % 3
weights = {0: 0.5, 2: 3.0}
for classes, loss in (
    (kinds, "sparse_categorical_crossentropy"),
    (kinds[:, None].astype("float32"), "sparse_categorical_crossentropy"),
    (np.eye(3, dtype="float32")[kinds], "categorical_crossentropy"),
):
    fitted = []
    for given in (True, False):
        keras.utils.set_random_seed(1)
        made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(3, "softmax")])
        made.compile(keras.optimizers.SGD(0.5), loss)
        if given:
            batches = tf.data.Dataset.from_tensor_slices((x, classes)).batch(16)
            made.fit(batches, epochs=3, class_weight=weights, validation_data=batches, verbose=0)
        else:
            made.fit(x, classes, batch_size=16, shuffle=False, epochs=3, class_weight=weights, verbose=0)
        fitted.append(made.get_weights())
    for a, b in zip(*fitted):
        assert np.allclose(a, b, atol=1e-6)
try:
    three = pairs.map(lambda a, b: (a, b, np.float32(1))).batch(16)
    one.fit(three, class_weight={0: 2.0}, verbose=0)
except ValueError as error:
    assert "third component" in str(error)
else:
    raise AssertionError("class_weight was passed over")

# A loss and a metric that call tf with tensors of Keras.
four = model()
four.compile("sgd", lambda t, p: tf.reduce_mean(tf.cast(t, tf.float32) * tf.math.log(1 + tf.square(t - p))),
    metrics=[lambda t, p: tf.reduce_sum(tf.cast(p > tf.constant(0.5), tf.float32))])
history = four.fit(data, epochs=4, validation_data=pairs.batch(16), verbose=0).history
assert history["loss"][-1] < history["loss"][0] and history["val_loss"][-1] < history["val_loss"][0]

# Keras writes into a copy of a tensor.
for made in (tf.constant(x[None] * 255), tf.cast(x[None] * 255, tf.uint8)):
    before = np.array(made)
    for space in ("resnet50", "vgg16", "densenet", "mobilenet_v2"):
        prepare = getattr(keras.applications, space).preprocess_input
        assert np.allclose(prepare(made), prepare(np.array(made))) and np.array_equal(made, before)
        (mapped,) = tf.data.Dataset.from_tensors(made).map(prepare)
        assert np.allclose(mapped, prepare(np.array(made)))
try:
    made[0] = 1
except TypeError as error:
    assert "tf.tensor_scatter_nd_update" in str(error)
else:
    raise AssertionError("a tensor was changed")

# The old names that Keras has for TensorFlow only.
words = tf.keras.preprocessing.text.Tokenizer()
words.fit_on_texts(["a b", "a c"])
assert words.texts_to_sequences(["b a"]) == [[2, 1]]
assert keras.preprocessing.sequence.pad_sequences([[1]], 2).tolist() == [[0, 1]]
flow = tf.keras.preprocessing.image.ImageDataGenerator(horizontal_flip=True).flow(np.ones((4, 8, 8, 3)), batch_size=2)
assert next(flow).shape == (2, 8, 8, 3)
K = keras.backend
five = model()
five.compile("sgd", lambda t, p: K.mean(K.square(K.flatten(t) - K.flatten(p))) + K.sum(K.cast(t > 9, "float32") * p),
    metrics=[lambda t, p: K.mean(K.dot(p, K.transpose(p)))])
assert np.allclose(five.evaluate(data, verbose=0)[0], one.__class__.evaluate(model(), data, verbose=0))
assert float(K.sum(K.clip(tf.constant([3.0, -1.0]), K.epsilon(), 2))) == np.float32(2 + 1e-7)
for wrong, words in ((lambda: keras.layers.Denss, "layers.Dense"), (lambda: keras.layers.experimental, "now")):
    try:
        wrong()
    except AttributeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
print("well")
"""


@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.stress)])
def test_keras_fits_evaluates_and_predicts(backend: str) -> None:
    environment = {**os.environ, "KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu"}
    call = [sys.executable, "-c", PROGRAM]
    ran = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.strip().endswith("well")
