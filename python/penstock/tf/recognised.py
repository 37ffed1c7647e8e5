"""`Recorded`: what stands for a record while it is found out what a mapped function does with it.

The function is called once with a `Recorded` scalar. Parsing functions give it back as a dict of
`Recorded` columns; whatever else is done with one raises `NotRecorded`, and the function then runs as it
is, record by record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from penstock.tf.dtypes import DType, as_dtype, string
from penstock.tf.features import FixedLenFeature, FixedLenSequenceFeature, RaggedFeature
from penstock.tf.features import SparseFeature as Sparse
from penstock.tf.shapes import TensorShape


class NotRecorded(Exception):
    """Something was done with a stand-in that only a value can answer."""


class Recorded:
    """A value that is not there yet: of a known dtype and shape, to be parsed or handed on.

    Args:
        dtype, shape: of the value.
        source: the stand-in that this one was parsed from; None for the serialized record.
        features: those it was parsed by.
        key: which of them it is.
    """

    __slots__ = ("dtype", "features", "key", "shape", "source")

    def __init__(
        self,
        dtype: Any = string,
        shape: Any = (),
        source: Recorded | None = None,
        features: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> None:
        self.dtype: DType = as_dtype(dtype)
        self.shape = TensorShape(shape)
        self.source = source
        self.features = features
        self.key = key

    def parse(self, features: Mapping[str, Any]) -> dict[str, Recorded]:
        """What parsing this serialized record, or batch of them, by these features gives."""
        if self.source is not None or self.dtype is not string or len(self.shape) > 1:
            raise NotRecorded("parsed twice")
        batch = list(self.shape)
        return {
            key: Recorded(feature.dtype, [*batch, *_shape(feature)], self, features, key)
            for key, feature in features.items()
        }

    def __getattr__(self, name: str) -> NoReturn:
        raise NotRecorded(name)


def _shape(feature: Any) -> list[int | None]:
    """The shape of a feature of one record."""
    if isinstance(feature, FixedLenFeature):
        return TensorShape(feature.shape).as_list()
    if isinstance(feature, FixedLenSequenceFeature):
        return [None, *TensorShape(feature.shape)]
    if isinstance(feature, Sparse):
        return TensorShape(feature.size).as_list()
    if isinstance(feature, RaggedFeature):
        lengths = [getattr(partition, "length", None) for partition in feature.partitions]
        return [None, *lengths]
    return [None]


def _refuse(name: str) -> Any:
    def refuse(self: Recorded, *_: Any, **__: Any) -> NoReturn:
        raise NotRecorded(name)

    return refuse


for _name in (
    "abs add and array array_ufunc array_function bool bytes call contains complex delitem divmod enter eq float "
    "floordiv format ge getitem gt hash iadd imul index int invert isub iter le len lshift lt matmul "
    "mod mul ne neg next or pos pow radd rand repr reversed rfloordiv rlshift rmatmul rmod rmul ror round rpow "
    "rrshift rshift rsub rtruediv rxor setitem str sub truediv xor"
).split():
    setattr(Recorded, f"__{_name}__", _refuse(f"__{_name}__"))
