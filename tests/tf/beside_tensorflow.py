"""TensorFlow itself, to compare with penstock.tf; an Example for both; and the message of a penstock error."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest

import penstock as ps
import penstock.tf as ours

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
theirs = tf

EXAMPLE = theirs.train.Example(
    features=theirs.train.Features(
        feature={
            "a": theirs.train.Feature(int64_list=theirs.train.Int64List(value=[1, 2])),
            "b": theirs.train.Feature(bytes_list=theirs.train.BytesList(value=[b"x"])),
            "c": theirs.train.Feature(float_list=theirs.train.FloatList(value=[0.5, 1, 2])),
            "none": theirs.train.Feature(int64_list=theirs.train.Int64List()),
        }
    )
).SerializeToString()


def message(run: Any) -> str:
    with pytest.raises(ours.errors.InvalidArgumentError) as caught:
        run()
    assert isinstance(caught.value, ps.PenstockError)
    return str(caught.value)
