"""TensorFlow's own results for serialized Examples, in the form of the golden files."""

from __future__ import annotations

import os
import warnings
from typing import Any

import tf_examples as tfe

import penstock.features as f
from penstock.features import describe, plan_fields
from penstock.payloads.example.plans import DecodePlan

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf


def specs_of(schema: dict[str, Any], dialect: str) -> tuple[Any, Any]:
    """TensorFlow's own specs for a schema: (context, sequence), from `describe`."""
    text = describe(DecodePlan(plan_fields(schema, dialect), dialect).schema)
    names: dict[str, Any] = {"tf": tf}
    if not text.startswith("context_features"):
        return eval(text, names), None
    exec(text, names)
    return names["context_features"], names["sequence_features"]


class Parser:
    """TensorFlow's parse of one payload at a time, compiled once for a schema."""

    def __init__(self, schema: dict[str, Any], *, sequence: bool) -> None:
        self.schema = schema
        self.sequence = sequence
        dialect = "tensorflow_sequence" if sequence else "tensorflow"
        context, lists = specs_of(schema, dialect)

        def parse(payloads: Any) -> Any:
            if not sequence:
                return tf.io.parse_example(payloads, context)
            return tf.io.parse_sequence_example(payloads, context or None, lists or None)

        self._parse = tf.function(parse, input_signature=[tf.TensorSpec([None], tf.string)])

    def __call__(self, payload: bytes) -> dict[str, Any] | str:
        """Tensors by column, or "refused"."""
        try:
            found = self._parse(tf.constant([payload]))
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            return "refused"
        if not self.sequence:
            return {key: _shown(tensor) for key, tensor in found.items()}
        out: dict[str, Any] = {}
        for name, given in self.schema.items():
            place = found[1] if isinstance(given, f.Sequence) else found[0]
            out[name] = _shown(place[name.partition("/")[2] or name])
        return out


def _shown(tensor: Any) -> dict[str, Any]:
    if isinstance(tensor, tf.SparseTensor):
        sparse = {
            "indices": tensor.indices.numpy().tolist(),
            "values": tfe.plain(tensor.values.numpy().tolist()),
            "dense_shape": tensor.dense_shape.numpy().tolist(),
        }
        return {"sparse": sparse, "dtype": tensor.dtype.name}
    if isinstance(tensor, tf.RaggedTensor):
        return {"ragged": tfe.plain(tensor.to_list()), "dtype": tensor.dtype.name}
    dense = tfe.plain(tensor.numpy().tolist())
    return {"dense": dense, "shape": list(tensor.shape), "dtype": tensor.dtype.name}
