"""Functions of models and losses written with `tf`: TensorFlow computes them with its tensors, penstock.tf with those
of Keras's backend.

As a program (`python keras_cases.py out.npz`) it computes them with penstock.tf, in compiled JAX or with torch's
gradients as KERAS_BACKEND says, without TensorFlow.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Y_TRUE = np.array([[1, 0, 1, 0], [0, 1, 1, 0]], np.float32)
Y_PRED = np.array([[0.9, 0.2, 0.55, 0.1], [0.3, 0.8, 0.6, 0.4]], np.float32)
NUMBERS = np.array([2, 0], np.int32)


def dice_loss(tf: Any, y_true: Any, y_pred: Any) -> Any:
    y_true = tf.cast(tf.reshape(y_true, [-1]), tf.float32)
    y_pred = tf.reshape(y_pred, [-1])
    shared = tf.reduce_sum(y_true * y_pred)
    return 1 - (2.0 * shared + 1.0) / (tf.reduce_sum(y_true) + tf.reduce_sum(y_pred) + 1.0)


def focal_loss(tf: Any, y_true: Any, y_pred: Any) -> Any:
    y_true = tf.cast(y_true, tf.float32)
    y_pred = tf.clip_by_value(y_pred, 1e-7, 1 - 1e-7)
    right = tf.where(tf.equal(y_true, 1.0), y_pred, 1 - y_pred)
    alpha = tf.where(y_true == 1.0, 0.25 * tf.ones_like(y_pred), 0.75 * tf.ones_like(y_pred))
    return tf.reduce_mean(-alpha * tf.pow(1.0 - right, 2.0) * tf.math.log(right), axis=-1)


def contrastive_loss(tf: Any, y_true: Any, y_pred: Any) -> Any:
    normed = tf.math.l2_normalize(y_pred, axis=1)
    likeness = tf.matmul(normed, normed, transpose_b=True) / tf.constant(0.1)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(2), likeness)


def squash(tf: Any, y_true: Any, y_pred: Any) -> Any:
    total = tf.reduce_sum(tf.square(y_pred), axis=-1, keepdims=True)
    return total / (1 + total) / tf.sqrt(total + tf.keras.backend.epsilon()) * y_pred


def by_batch(tf: Any, y_true: Any, y_pred: Any) -> Any:
    rows = tf.shape(y_pred)[0]
    flat = tf.reshape(y_pred, [rows, -1])
    return tf.tile(tf.expand_dims(flat, 1), [1, 2, 1]) * tf.cast(rows, tf.float32)


LOSSES: dict[str, Any] = {
    "dice": dice_loss,
    "focal": focal_loss,
    "contrastive": contrastive_loss,
    "squash": squash,
    "by batch": by_batch,
    "operators": lambda tf, t, p: (
        (tf.constant(Y_TRUE) - p)
        / (2 - tf.constant(Y_PRED) ** p)
        @ (tf.transpose(p) * tf.constant([[1.0, 2.0]]))
    ),
    "stopped": lambda tf, t, p: tf.stop_gradient(p) * p,
    "lists": lambda tf, t, p: tf.add_n([p, p, tf.constant(Y_TRUE)]) + tf.reduce_mean([p, t]),
    "stacked": lambda tf, t, p: tf.concat([tf.stack([p, p], 1), tf.zeros([2, 1, 4])], axis=1),
    "split": lambda tf, t, p: [*tf.split(p, 2, axis=1), *tf.split(p, [1, 3], 1), *tf.unstack(p)],
    "moved": lambda tf, t, p: [
        tf.pad(p, [[0, 0], [1, 2]], constant_values=3),
        tf.reverse(p, [1]),
        tf.repeat(p, 2, axis=0),
        tf.slice(p, [0, 1], [-1, 2]),
        tf.squeeze(p[:, :1], -1),
        tf.gather(p, [2, 0], axis=1),
        tf.broadcast_to(p[0], [3, 4]),
        tf.sort(p, direction="DESCENDING"),
        tf.identity(p),
    ],
    "summed": lambda tf, t, p: [
        tf.cumsum(p, 1, exclusive=True),
        tf.cumsum(p, reverse=True),
        tf.math.cumprod(p, 1),
        tf.reduce_max(p, [0]),
        tf.reduce_prod(p),
        tf.math.reduce_std(p, 0),
        tf.math.reduce_variance(p),
        tf.reduce_logsumexp(p, 1),
        tf.norm(p),
        tf.norm(p, axis=1, keepdims=True),
        *tf.nn.moments(p, [0]),
        tf.math.reduce_euclidean_norm(p, 1),
        tf.tensordot(p, t, [[1], [1]]),
        tf.einsum("ij,kj->ik", p, t),
    ],
    "activations": lambda tf, t, p: [
        tf.nn.softmax(p),
        tf.nn.log_softmax(p, 0),
        tf.nn.gelu(p - 0.5),
        tf.nn.gelu(p, True),
        tf.nn.leaky_relu(p - 0.5, 0.3),
        tf.nn.relu(p - 0.5),
        tf.sigmoid(p),
        tf.tanh(p),
        tf.math.softplus(p),
        tf.math.rsqrt(p),
        tf.math.divide_no_nan(p, t),
        tf.math.squared_difference(p, t),
        tf.math.multiply_no_nan(p, t),
        tf.math.log1p(p),
    ],
    "entropies": lambda tf, t, p: [
        tf.nn.sigmoid_cross_entropy_with_logits(labels=t, logits=p - 0.5),
        tf.nn.softmax_cross_entropy_with_logits(labels=t / 2, logits=p),
        tf.nn.weighted_cross_entropy_with_logits(t, p - 0.5, 2.0),
    ],
    "images": lambda tf, t, p: [
        tf.nn.max_pool2d(tf.reshape(p, [1, 2, 4, 1]), 2, 2, "SAME"),
        tf.nn.avg_pool2d(tf.reshape(p, [1, 2, 4, 1]), (1, 2), 1, "VALID"),
        tf.image.resize(tf.reshape(p, [1, 2, 4, 1]), [4, 6]),
        tf.image.resize(tf.reshape(p, [1, 2, 4, 1]), (3, 3), method="nearest"),
    ],
}
"""Functions of labels and predictions that have a gradient."""

OTHERS: dict[str, Any] = {
    "accuracy": lambda tf, t, p: tf.reduce_mean(
        tf.cast(tf.equal(tf.argmax(p, -1), tf.argmax(t, axis=-1)), tf.float32)
    ),
    "intersection": lambda tf, t, p: tf.reduce_sum(
        tf.cast(tf.logical_and(p > 0.5, tf.cast(t, tf.bool)), tf.int32)
    ),
    "whole": lambda tf, t, p: [tf.reduce_mean(tf.cast(p * 10, tf.int32)), tf.reduce_any(p > 0.85)],
    "counted": lambda tf, t, p: [
        tf.math.count_nonzero(t, axis=1),
        tf.argsort(p, direction="DESCENDING"),
        tf.zeros_like(p),
        tf.math.is_nan(p),
        tf.round(p),
        tf.sign(p - 0.5),
        *tf.math.top_k(p, 2),
        tf.size(p),
        tf.rank(p),
        tf.one_hot(tf.cast(t[:, 0], tf.int32), 3, 5.0, 1.0),
        tf.convert_to_tensor(p),
    ],
}
"""Functions without a gradient."""


def flat(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def total(tf: Any, made: Any) -> Any:
    """A number that depends on each value of the results in another way."""
    return sum(tf.reduce_sum(tf.cos(part + number)) for number, part in enumerate(flat(made)))


def _on_jax(tf: Any, found: dict[str, Any]) -> None:
    import jax

    @jax.jit
    def compiled(t: Any, p: Any) -> Any:
        values = {name: flat(run(tf, t, p)) for name, run in {**LOSSES, **OTHERS}.items()}
        slopes = {
            name: jax.grad(lambda p, run=run: total(tf, run(tf, t, p)))(p)
            for name, run in LOSSES.items()
        }
        return values, slopes

    values, slopes = compiled(Y_TRUE, Y_PRED)
    for name, made in values.items():
        found.update({f"{name} {n}": np.asarray(part) for n, part in enumerate(made)})
    found.update({f"{name} gradient": np.asarray(slope) for name, slope in slopes.items()})


def _on_torch(tf: Any, found: dict[str, Any]) -> None:
    import torch

    for name, function in {**LOSSES, **OTHERS}.items():
        given = torch.tensor(Y_PRED, requires_grad=True)
        made = flat(function(tf, torch.tensor(Y_TRUE), given))
        for number, part in enumerate(made):
            part = part.detach() if isinstance(part, torch.Tensor) else part
            found[f"{name} {number}"] = np.asarray(part)
        if name in LOSSES:
            total(tf, made).backward()
            found[f"{name} gradient"] = np.asarray(given.grad)


def _trained(tf: Any, keras: Any) -> None:
    """A model with such functions in its layers, losses and metrics is trained."""
    keras.utils.set_random_seed(1)
    x = np.random.default_rng(0).random((16, 8, 8, 1), np.float32)
    y = (x > 0.5).astype(np.float32)
    inputs = keras.Input((8, 8, 1))
    hidden = keras.layers.Conv2D(4, 3, padding="same")(inputs)
    hidden = tf.concat([tf.nn.relu(hidden), inputs], axis=-1)
    hidden = keras.layers.Lambda(lambda h: tf.image.resize(tf.image.resize(h, [4, 4]), [8, 8]) + h)(
        hidden
    )
    assert tf.shape(hidden)[0] is None
    hidden = tf.reshape(hidden, [tf.shape(hidden)[0], 8, 8, 5])
    model = keras.Model(inputs, keras.layers.Conv2D(1, 1, activation="sigmoid")(hidden))

    def loss(t: Any, p: Any) -> Any:
        return dice_loss(tf, t, p) + tf.reduce_mean(focal_loss(tf, t, p))

    def overlap(t: Any, p: Any) -> Any:
        return OTHERS["intersection"](tf, t, p)

    model.compile(keras.optimizers.Adam(0.1), loss, metrics=[overlap])
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    history = model.fit(data, epochs=3, validation_data=data, verbose=0).history
    assert history["val_loss"][-1] < history["val_loss"][0] * 0.98, history
    assert set(history) == {"loss", "overlap", "val_loss", "val_overlap"}


def _refused(tf: Any, keras: Any) -> None:
    """What cannot be done says what to write instead."""
    for wrong, words in (
        (lambda p: tf.boolean_mask(p, [True, False]), "keras.ops"),
        (lambda p: tf.where(p > 0.5), "tf.where"),
        (lambda p: p + tf.random.normal([2, 4]), "keras.random"),
    ):
        try:
            if keras.backend.backend() == "jax":
                import jax

                jax.jit(wrong)(Y_PRED)
            else:
                wrong(keras.Variable(Y_PRED).value)
                continue
        except tf.errors.UnimplementedError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)


def main() -> None:
    sys.modules["tensorflow"] = None  # type: ignore[assignment] -- it is not to be had
    import penstock.tf as tf

    keras = tf.keras
    found: dict[str, Any] = {}
    (_on_jax if keras.backend.backend() == "jax" else _on_torch)(tf, found)
    _trained(tf, keras)
    _refused(tf, keras)
    np.savez(sys.argv[1], **found)


if __name__ == "__main__":
    main()
