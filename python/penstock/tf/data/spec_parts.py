"""The dtypes, shapes and kinds of tensors in a structure of specs, as TensorFlow 1 lists them."""

from __future__ import annotations

from typing import Any

from penstock.tf.nest import map_structure
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.shapes import RaggedTensorSpec, SparseTensorSpec
from penstock.tf.sparse import SparseTensor
from penstock.tf.tensor import Tensor


def types_of(spec: Any) -> Any:
    """The dtype of each spec."""
    return map_structure(lambda leaf: leaf.dtype, spec, lists=False)


def shapes_of(spec: Any) -> Any:
    """The shape of each spec."""
    return map_structure(lambda leaf: leaf.shape, spec, lists=False)


def classes_of(spec: Any) -> Any:
    """The class of tensors of each spec."""
    kinds = {SparseTensorSpec: SparseTensor, RaggedTensorSpec: RaggedTensor}
    return map_structure(lambda leaf: kinds.get(type(leaf), Tensor), spec, lists=False)
