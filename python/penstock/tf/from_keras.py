"""The names that TensorFlow takes from Keras, `tf.keras` first: here they are those of the package `keras`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import operator
import os
import sys
from typing import Any

from penstock.tf.missing import MissingSymbolError

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
    keras = importlib.import_module("keras")
    return operator.attrgetter(NAMES[name])(keras) if NAMES[name] else keras


def _backend() -> str:
    """The package that Keras would run on."""
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    try:
        with open(os.path.join(home, "keras.json"), encoding="utf-8") as file:
            settings = json.load(file)
    except (OSError, ValueError):
        settings = {}
    return os.environ.get("KERAS_BACKEND") or settings.get("backend", "tensorflow")
