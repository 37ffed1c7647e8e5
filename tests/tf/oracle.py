"""TensorFlow's message classes, with which `penstock.tf.train` is compared.

`messages` imports TensorFlow, which takes seconds. Importing this module does not.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.tf import train

NAMES = [name for name in train.__all__ if name != "DecodeError"]


def messages() -> Any:
    """The classes of TensorFlow's `tf.train`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = pytest.importorskip("tensorflow")
    from google.protobuf.message import DecodeError

    classes = {name: getattr(tensorflow.train, name) for name in NAMES}
    return SimpleNamespace(**classes, DecodeError=DecodeError)
