"""The names that TensorFlow takes from Keras, `tf.keras` first: here they are those of the package `keras`."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import operator
import os
import sys
from types import ModuleType
from typing import Any

from penstock.tf.keras_datasets import FUNCTIONS, dataset_function, refuse_layer
from penstock.tf.missing import MissingSymbolError, similar

NAMES = {
    "keras": "",
    "constant_initializer": "initializers.Constant",
    "initializers": "initializers",
    "losses": "losses",
    "metrics": "metrics",
    "ones_initializer": "initializers.Ones",
    "optimizers": "optimizers",
    "random_normal_initializer": "initializers.RandomNormal",
    "random_uniform_initializer": "initializers.RandomUniform",
    "zeros_initializer": "initializers.Zeros",
}
"""The name in `keras` of each name of `tf`; empty for the package itself."""
_NOW = {"tf.keras.layers.experimental": "tf.keras.layers, which has these layers now"}


def from_keras(name: str) -> Any:
    """Return what `tf.<name>` is in TensorFlow, from the package `keras`.

    Keras runs on JAX, torch or TensorFlow, as `KERAS_BACKEND` or Keras's own settings say. If they say TensorFlow,
    which is also the default, and it is not installed, another one that is installed is chosen.

    Raises:
        MissingSymbolError: Keras is not installed.
    """
    if importlib.util.find_spec("keras") is None:
        message = f"tf.{name} is a part of Keras, which is not installed"
        hint = "pip install keras, and jax or torch to run it on"
        raise MissingSymbolError(None, None, message, hint=hint)
    if "keras" not in sys.modules and importlib.util.find_spec(_backend()) is None:
        installed = [one for one in ("jax", "torch") if importlib.util.find_spec(one) is not None]
        os.environ["KERAS_BACKEND"] = installed[0] if installed else _backend()
    keras = _tf_keras()
    return operator.attrgetter(NAMES[name])(keras) if NAMES[name] else keras


@functools.cache
def _tf_keras() -> TfKeras:
    keras: Any = importlib.import_module("keras")
    old: Any = sys.modules.get("keras.src.legacy.backend")
    if old is not None and keras.backend.backend() != "tensorflow":
        # The old functions of `tf.keras.backend` call TensorFlow.
        old.tf = importlib.import_module("penstock.tf")
        old.ndim = lambda x: len(x.shape)
    return TfKeras("tf.keras", keras, importlib.import_module("keras._tf_keras.keras"))


class TfKeras:
    """`tf.keras`, or a module of it: the names of `keras`, and the old ones that Keras has for TensorFlow only, such as
    `tf.keras.preprocessing.text` and `tf.keras.backend.sum`."""

    def __init__(self, symbol: str, keras: ModuleType, of_tensorflow: ModuleType) -> None:
        self._symbol, self._keras, self._of_tensorflow = symbol, keras, of_tensorflow

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS and self._symbol in {"tf.keras.utils", "tf.keras.preprocessing"}:
            return dataset_function(name)
        refuse_layer(f"{self._symbol}.{name}")
        old = getattr(self._of_tensorflow, name, None)
        found = getattr(self._keras, name, old)
        if found is None:
            self._refuse(name)
        if isinstance(found, ModuleType) and found.__name__.startswith("keras."):
            of_tensorflow = old if isinstance(old, ModuleType) else found
            found = TfKeras(f"{self._symbol}.{name}", found, of_tensorflow)
            setattr(self, name, found)
        return found

    def _refuse(self, name: str) -> None:
        if name.startswith("_"):
            raise AttributeError(name)
        symbol = f"{self._symbol}.{name}"
        message = f"{symbol} is not part of Keras {sys.modules['keras'].__version__}"
        found = similar(symbol, (f"{self._symbol}.{one}" for one in dir(self)))
        hint = _NOW.get(symbol) or found or f"one of dir({self._symbol})"
        raise MissingSymbolError(None, None, message, hint=hint)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._keras), *dir(self._of_tensorflow)})

    def __repr__(self) -> str:
        return f"<{self._symbol}, which is {self._keras!r}>"


def _backend() -> str:
    """The package that Keras would run on."""
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    try:
        with open(os.path.join(home, "keras.json"), encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError):
        settings = {}
    return os.environ.get("KERAS_BACKEND") or settings.get("backend", "tensorflow")
