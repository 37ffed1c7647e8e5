"""What TensorFlow has and penstock has not: an error that names it, and what to use instead."""

from __future__ import annotations

from penstock.errors import UnsupportedError

NEAREST: dict[str, str] = {
    "tf.keras": "import keras (set KERAS_BACKEND to torch or jax); model.fit takes datasets of penstock.tf",
    "tf.strings": "work on the bytes in a function given to Dataset.map: value.numpy()",
    "tf.data.Dataset.from_tensor": "tf.data.Dataset.from_tensors or from_tensor_slices",
    "tf.data.experimental.service": "ps.Loader(rank=, world_size=), which needs no service",
    "tf.data.experimental.make_csv_dataset": "pyarrow.csv, then ps.write and ps.Loader",
    "tf.data.experimental.SqlDataset": "Dataset.from_generator over the rows",
    "tf.data.experimental": "ps.open and ps.Loader",
    "tf.data.Dataset": "ps.open and ps.Loader",
    "tf.data.Dataset.fingerprint": "ps.open(...).fingerprint",
    "tf.data.Dataset.group_by_window": "Dataset.bucket_by_sequence_length, or Dataset.window",
    "tf.data.Dataset.load": "Dataset.cache(path), or ps.open",
    "tf.data.Dataset.random": "Dataset.counter().map with numpy.random",
    "tf.data.Dataset.rejection_resample": "Dataset.filter",
    "tf.data.Dataset.save": "Dataset.cache(path), or ps.write",
    "tf.data.Dataset.snapshot": "Dataset.cache(path)",
    "tf.data.Dataset.sparse_batch": "Dataset.ragged_batch",
    "tf.data": "ps.open and ps.Loader",
    "tf.distribute": "ps.Loader(rank=, world_size=)",
    "tf.image.decode_and_resize": "ps.decode_images(column, ps.Image(size=...))",
    "tf.image": "ps.Image in ps.Loader, or pillow in a function given to Dataset.map",
    "tf.io.parse": "ps.open(path, schema={...}), which decodes columns",
    "tf.io": "ps.open and ps.write",
    "tf.audio": "soundfile in a function given to Dataset.map",
    "tf.train": "penstock prepares data; to train use keras, torch or jax",
    "tf.nn": "penstock prepares data; to compute use keras, torch or jax",
    "tf.linalg": "numpy.linalg, which takes tensors of penstock.tf",
    "tf.math": "the function of that name in numpy, which takes tensors of penstock.tf",
    "tf.random": "numpy.random, or tf.random.stateless_uniform",
    "tf.config": "penstock uses all cores by threads; nothing needs to be set",
    "tf.compat.v1": "the same name without compat.v1, where penstock.tf has it",
}
DEFAULT = "the function of that name in numpy, which takes tensors of penstock.tf"


class MissingSymbolError(UnsupportedError, AttributeError):
    """A symbol of TensorFlow that penstock.tf has not; `hint` names the nearest way."""


def nearest(symbol: str) -> str:
    """The way of penstock that comes nearest to a symbol of TensorFlow."""
    fits = [prefix for prefix in NEAREST if symbol.startswith(prefix)]
    return NEAREST[max(fits, key=len)] if fits else DEFAULT


def missing(symbol: str) -> MissingSymbolError:
    """The error for a symbol of TensorFlow that is not here.

    Example:
        >>> import penstock.tf as tf
        >>> hasattr(tf, "keras")
        False
    """
    return MissingSymbolError(f"{symbol} is not part of penstock.tf", hint=nearest(symbol))
