"""Parsed tensors of both libraries in the form of the golden files, and golden specs as features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import penstock.tf as tf
from penstock.tf import features as f


def plain(value: Any) -> Any:
    """Values in the form of the golden files."""
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if isinstance(value, bytes):
        return {"bytes_hex": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def shown(tensor: Any) -> Any:
    """A tensor, or dicts and tuples of tensors, of either library, in the form of the golden files."""
    if isinstance(tensor, dict):
        return {key: shown(part) for key, part in tensor.items()}
    if isinstance(tensor, tuple):
        return [shown(part) for part in tensor]
    dtype = tf.as_dtype(tensor.dtype).name
    if hasattr(tensor, "dense_shape"):
        sparse = {
            "indices": tensor.indices.numpy().tolist(),
            "values": plain(tensor.values.numpy().tolist()),
            "dense_shape": tensor.dense_shape.numpy().tolist(),
        }
        return {"sparse": sparse, "dtype": dtype}
    if hasattr(tensor, "row_splits"):
        return {"ragged": plain(tensor.to_list()), "dtype": dtype}
    found = tensor.numpy()
    dense = found if isinstance(found, bytes) else found.tolist()
    return {"dense": plain(dense), "shape": list(tensor.shape), "dtype": dtype}


def outcome(run: Callable[[], Any]) -> Any:
    """The result of a parse, or its error."""
    try:
        return shown(run())
    except Exception as error:
        return {"error": {"type": type(error).__name__, "message": str(error)}}


def spec_of(spec: dict[str, Any], name: str = "") -> Any:
    """A golden feature spec as a feature. Two options are known only from the name of the case."""
    dtype, shape = tf.as_dtype(spec["dtype"]), spec.get("shape")
    default = value_of(spec["default_value"]) if "default_value" in spec else None
    match spec["kind"]:
        case "FixedLenFeature":
            return f.FixedLenFeature(shape, dtype, default)
        case "VarLenFeature":
            return f.VarLenFeature(dtype)
        case "FixedLenSequenceFeature":
            return f.FixedLenSequenceFeature(
                shape, dtype, spec.get("allow_missing", False), default
            )
        case "RaggedFeature":
            partitions = [eval(p, dict(vars(f.RaggedFeature))) for p in spec.get("partitions", [])]
            return f.RaggedFeature(
                dtype,
                spec.get("value_key"),
                partitions,
                spec["row_splits_dtype"],
                "validate" in name,
            )
        case "SparseFeature":
            flagged = "flagged" in name
            return f.SparseFeature(
                spec["index_key"], spec["value_key"], dtype, spec["size"], flagged
            )
    raise AssertionError(spec)


def value_of(golden: Any) -> Any:
    """A golden value as a Python value."""
    if isinstance(golden, dict):
        return bytes.fromhex(golden["bytes_hex"])
    return [value_of(part) for part in golden] if isinstance(golden, list) else golden
