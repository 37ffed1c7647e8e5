"""TensorFlow's message classes, without the rest of TensorFlow, which takes seconds to import."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.tf import train

NAMES = [name for name in train.__all__ if name != "DecodeError"]


def messages() -> Any:
    """The classes that `tf.train` has."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = pytest.importorskip("tensorflow")
    from google.protobuf.message import DecodeError

    classes = {name: getattr(tensorflow.train, name) for name in NAMES}
    return SimpleNamespace(**classes, DecodeError=DecodeError)
