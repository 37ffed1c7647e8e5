r"""`tf.train`: the messages of records (Example, SequenceExample and their parts), without a protobuf runtime.

They behave like protobuf's: they are made with keywords, changed in place, merged, compared and printed, and serialize
to the same bytes. Three more things are allowed: a message can be assigned to a key of a map (it is copied), maps have
`update` and `setdefault`, and True is a number, as in protobuf before version 7.

Example:
    >>> import penstock.tf as tf
    >>> example = tf.train.Example()
    >>> example.features.feature["label"].int64_list.value.append(3)
    >>> example.SerializeToString()
    b'\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x03'
    >>> example.features.feature["height"] = tf.train.Feature(float_list={"value": [1.5]})
    >>> print(tf.train.Example.FromString(example.SerializeToString()).features.feature["height"])
    float_list {
      value: 1.5
    }
    <BLANKLINE>
"""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence
from typing import Any

from penstock._core import (
    BytesList,
    Example,
    Feature,
    FeatureList,
    FeatureLists,
    Features,
    FloatList,
    Int64List,
    MessageMap,
    RepeatedMessage,
    RepeatedScalar,
    SequenceExample,
)
from penstock.tf.errors import DecodeError
from penstock.tf.missing import absent_from

_LIKE: list[tuple[Any, type]] = [
    (MutableMapping, MessageMap),
    (MutableSequence, RepeatedMessage),
    (MutableSequence, RepeatedScalar),
]
for _abstract, _class in _LIKE:
    _abstract.register(_class)

__all__ = [
    "BytesList",
    "DecodeError",
    "Example",
    "Feature",
    "FeatureList",
    "FeatureLists",
    "Features",
    "FloatList",
    "Int64List",
    "SequenceExample",
]

__getattr__ = absent_from("tf.train")
