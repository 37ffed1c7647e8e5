"""TensorFlow's own spelling of what penstock does, for code that exists: `import penstock.tf as tf`."""

from penstock.tf import errors, image
from penstock.tf.dtypes import (
    DType,
    as_dtype,
    complex64,
    complex128,
    double,
    float16,
    float32,
    float64,
    half,
    int8,
    int16,
    int32,
    int64,
    string,
    uint8,
    uint16,
    uint32,
    uint64,
)
from penstock.tf.dtypes import bool_ as bool
from penstock.tf.shapes import (
    RaggedTensorSpec,
    SparseTensorSpec,
    TensorShape,
    TensorSpec,
    TypeSpec,
)
from penstock.tf.tensor import Tensor, constant, convert_to_tensor

__all__ = [
    "DType",
    "RaggedTensorSpec",
    "SparseTensorSpec",
    "Tensor",
    "TensorShape",
    "TensorSpec",
    "TypeSpec",
    "as_dtype",
    "bool",
    "complex64",
    "complex128",
    "constant",
    "convert_to_tensor",
    "double",
    "errors",
    "float16",
    "float32",
    "float64",
    "half",
    "image",
    "int8",
    "int16",
    "int32",
    "int64",
    "string",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
