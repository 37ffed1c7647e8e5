"""The error for what TensorFlow has and penstock lacks, with the nearest alternative."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from penstock.tf.error_classes import UnimplementedError

NEAREST: dict[str, str] = {
    "tf.audio": "soundfile in a function given to Dataset.map",
    "tf.config": "no setting: threads already use all cores",
    "tf.GradientTape": "fit of Keras, jax.grad or torch's autograd: penstock.tf has no training loops",
    "tf.RaggedTensor": "its values and row_splits, which are arrays",
    "tf.SparseTensor": "its indices, values and dense_shape, which are arrays",
    "tf.Variable": "keras.Variable, or a NumPy array: penstock.tf has no training loops",
    "tf.data": "ps.open and ps.Loader",
    "tf.data.Dataset.fingerprint": "ps.open(...).fingerprint",
    "tf.data.Dataset.sparse_batch": "Dataset.ragged_batch",
    "tf.data.experimental": "ps.open and ps.Loader",
    "tf.data.experimental.SqlDataset": "sqlite3, then Dataset.from_generator",
    "tf.data.experimental.service": "ps.Loader(rank=..., world_size=...), which needs no service",
    "tf.distribute": "ps.Loader(rank=..., world_size=...)",
    "tf.errors": "the classes of tf.errors, such as tf.errors.NotFoundError",
    "tf.experimental": "numpy, which takes tensors of penstock.tf, for tf.experimental.numpy",
    "tf.feature_column": "tf.one_hot, tf.lookup and tf.cast in a function given to Dataset.map",
    "tf.image": "ps.Image in ps.Loader, or pillow in a function given to Dataset.map",
    "tf.io": "ps.open and ps.write",
    "tf.io.decode_json_example": "json in a function given to Dataset.map",
    "tf.io.decode_proto": "FromString of the message's class, in a function given to Dataset.map",
    "tf.io.decode_webp": "ps.Image in ps.Loader, or pillow in a function given to Dataset.map",
    "tf.io.encode_proto": "SerializeToString of a message, in a function given to Dataset.map",
    "tf.io.match_filenames_once": "tf.io.matching_files",
    "tf.linalg": "numpy.linalg, which takes tensors of penstock.tf",
    "tf.lookup": "a dict, in a function given to Dataset.map",
    "tf.Session": "no session: values are computed immediately",
    "tf.placeholder": "no session: values are computed immediately",
    "tf.flags": "argparse",
    "tf.app": "a call of main()",
    "tf.nn": "torch, JAX or keras: penstock prepares data",
    "tf.random": "numpy.random, or tf.random.uniform",
    "tf.ragged": "the values and row_splits of a ragged tensor, which are arrays",
    "tf.saved_model": "model.save or model.export of Keras",
    "tf.signal": "numpy.fft, which takes tensors of penstock.tf",
    "tf.sparse": "the indices and values of a sparse tensor, which are arrays",
    "tf.strings": "the methods of bytes in a function given to Dataset.map: value.numpy()",
    "tf.summary": "keras.callbacks.TensorBoard, or torch.utils.tensorboard",
    "tf.train": "torch, JAX or keras: penstock prepares data",
}
"""The nearest alternative by prefix of a symbol; the longest matching prefix counts."""


def similar(symbol: str, known: Iterable[str]) -> str | None:
    """The known symbol that is nearest to one that does not exist: the same name elsewhere, or a similar one.

    Example:
        >>> from penstock.tf.missing import similar
        >>> known = ["tf.math.reduce_std", "tf.shape", "tf.math.reduce_sum"]
        >>> similar("tf.reduce_std", known), similar("tf.shap", known), similar("tf.foo", known)
        ('tf.math.reduce_std', 'tf.shape', None)
    """
    space, _, name = symbol.rpartition(".")
    names: dict[str, list[str]] = {}
    for one in known:
        names.setdefault(one.rpartition(".")[2], []).append(one)
    here = [one for one, places in names.items() if f"{space}.{one}" in places]
    close = difflib.get_close_matches(name, here, 1, 0.8) or difflib.get_close_matches(
        name, names, 1, 0.85
    )
    places = names.get(name) or names.get(close[0] if close else "") or []
    return min(places, key=lambda one: (not one.startswith(f"{space}."), len(one)), default=None)


IN_TENSORFLOW = "TensorFlow itself, which takes tensors of penstock.tf as arrays"


class MissingSymbolError(UnimplementedError, AttributeError):
    """A symbol of TensorFlow that penstock.tf lacks; `hint` names the nearest alternative."""


def nearest(symbol: str) -> str:
    """The nearest alternative, in penstock or elsewhere, to a symbol of TensorFlow."""
    symbol = _current(symbol)
    fits = [start for start in NEAREST if f"{symbol}.".startswith(f"{start}.")]
    if fits:
        return NEAREST[max(fits, key=len)]
    name = symbol.rpartition(".")[2]
    return in_numpy(name) if _is_function(getattr(np, name, None)) else IN_TENSORFLOW


def _current(symbol: str) -> str:
    symbol = symbol.replace("tf.compat.v1.", "tf.")
    return _OLD_NAMES.get(symbol, symbol)


def in_numpy(name: str) -> str:
    """The NumPy function of the same name as an alternative."""
    return f"numpy.{name}, which takes tensors of penstock.tf"


def _is_function(found: object) -> bool:
    return callable(found) and hasattr(found, "__name__") and not isinstance(found, type)


_OLD_NAMES = {
    "tf.data.experimental.dense_to_sparse_batch": "tf.data.Dataset.sparse_batch",
    "tf.disable_eager_execution": "tf.Session",
    "tf.disable_v2_behavior": "tf.Session",
}
"""Names whose nearest alternative is that of another name."""


def missing(symbol: str) -> MissingSymbolError:
    """The error for a symbol of TensorFlow, given in full, that penstock lacks.

    Example:
        >>> from penstock.tf.missing import missing
        >>> print(missing("tf.data.Dataset.sparse_batch"))
        tf.data.Dataset.sparse_batch is not part of penstock.tf
          try: Dataset.ragged_batch
    """
    message = f"{symbol} is not part of penstock.tf"
    return MissingSymbolError(None, None, message, hint=_hint(symbol))


def _hint(symbol: str) -> str:
    way, found = nearest(symbol), similar(symbol, _known())
    if _current(symbol) in NEAREST or found is None:
        return way
    space, _, name = symbol.rpartition(".")
    if found.rpartition(".")[2] == name:
        # A function of that name elsewhere does not take these tensors.
        return (
            way if space.startswith(("tf.sparse", "tf.ragged", "tf.Ragged", "tf.Sparse")) else found
        )
    is_numpys = way == in_numpy(name)
    return way if is_numpys else f"{found}, if that is meant; else {way}"


@functools.cache
def _known() -> tuple[str, ...]:
    """The public symbols of penstock.tf, in full."""
    tf = sys.modules["penstock.tf"]
    found: list[str] = []
    spaces = [("tf", tf), ("tf.data.Dataset", tf.data.Dataset), ("tf.compat.v1", tf.compat.v1)]
    while spaces:
        space, where = spaces.pop()
        for name in getattr(where, "__all__", [one for one in dir(where) if one[0] != "_"]):
            value = inspect.getattr_static(where, name, None)
            is_module = isinstance(value, ModuleType)
            of = value.__name__ if is_module else getattr(value, "__module__", "penstock.tf")
            if value is None or value is tf.compat or not of.startswith("penstock.tf"):
                continue
            found.append(f"{space}.{name}")
            if isinstance(value, Space) or (is_module and space != "tf.compat.v1"):
                spaces.append((found[-1], value))
    return tuple(found)


def absent_from(space: str) -> Callable[[str], Any]:
    """A module's `__getattr__`, which raises MissingSymbolError for every unknown name."""

    def refuse(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise missing(f"{space}.{name}")

    return refuse


class Space(SimpleNamespace):
    """A namespace of TensorFlow, such as `tf.random.experimental`, which raises MissingSymbolError for every unknown
    name."""

    def __init__(self, symbol: str, /, **names: Any) -> None:
        super().__init__(**names)
        self._symbol = symbol

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as _symbol, before it is set
            raise AttributeError(name)
        raise missing(f"{self._symbol}.{name}")


class KnownNames(type):
    """The metaclass of a class of TensorFlow, which raises MissingSymbolError for every unknown name."""

    def __getattr__(cls, name: str) -> Any:
        return absent_from(f"tf.{cls.__name__}")(name)
