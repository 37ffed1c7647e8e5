"""Makes Examples from keywords, and decodes the column of one feature."""

from __future__ import annotations

from typing import Any

import tf_examples as tfe
from protobuf_example import Example


def example(**values: list[Any]) -> bytes:
    """A serialized Example. An empty list becomes a feature without a kind."""
    message = Example()
    for key, given in values.items():
        feature = message.features.feature[key]
        if given and isinstance(given[0], bytes):
            feature.bytes_list.value.extend(given)
        elif given and isinstance(given[0], float):
            feature.float_list.value.extend(given)
        elif given:
            feature.int64_list.value.extend(given)
    return message.SerializeToString(deterministic=True)


def column(payloads: list[bytes], feature: Any, dialect: str = "protobuf") -> Any:
    return tfe.decode(payloads, {"x": feature}, dialect).column("x").to_pylist()
