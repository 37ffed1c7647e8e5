"""Serialized Examples as frames, and decoded batches in the form in which the golden files store TensorFlow's
tensors."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import penstock.features as f
from penstock import _core
from penstock.errors import SchemaError
from penstock.features import kernel_dialect, plan_fields
from penstock.payloads.example.plans import DecodePlan

REFUSED = (_core.KernelError, SchemaError, ValueError, TypeError)


def masked(data: bytes) -> int:
    crc = _core.Buffer.from_bytes(data).crc32c()
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(payloads: Sequence[bytes]) -> bytes:
    """Payloads as a TFRecord file."""
    parts: list[bytes] = []
    for payload in payloads:
        length = struct.pack("<Q", len(payload))
        parts += [length, struct.pack("<I", masked(length))]
        parts += [payload, struct.pack("<I", masked(payload))]
    return b"".join(parts)


def frames(payloads: Sequence[bytes]) -> Any:
    """Payloads as frames to decode."""
    buffer = _core.Buffer.from_bytes(framed(payloads))
    found, consumed, _, fault = _core.walk("tfrecord", buffer, 0, 1 << 30)
    assert fault is None and consumed == len(buffer) and len(found) == len(payloads)
    return found


def decode(payloads: Sequence[bytes], schema: dict[str, Any], dialect: str) -> pa.RecordBatch:
    """Payloads decoded by a schema of features."""
    plan = DecodePlan(plan_fields(schema, dialect), kernel_dialect(schema, dialect))
    batch = plan.decode(frames(payloads))
    batch.validate(full=True)
    return batch


# Golden specs and values


def value(golden: Any) -> Any:
    """A golden value as a Python value. NaN becomes a string, so that it equals itself."""
    if isinstance(golden, dict):
        return bytes.fromhex(golden["bytes_hex"])
    return [value(part) for part in golden] if isinstance(golden, list) else golden


def plain(values: Any) -> Any:
    """Decoded values in the same form."""
    if isinstance(values, dict):
        return {key: plain(part) for key, part in values.items()}
    if isinstance(values, (list, tuple)):
        return [plain(part) for part in values]
    if isinstance(values, float) and (math.isnan(values) or math.isinf(values)):
        return str(values)
    return values


def feature(spec: dict[str, Any], name: str = "") -> Any:
    """A golden feature spec as a feature. Two options are known only from the name of the case."""
    dtype, shape = spec["dtype"], spec.get("shape")
    default = value(spec["default_value"]) if "default_value" in spec else None
    match spec["kind"]:
        case "FixedLenFeature":
            return f.FixedLen(shape, dtype, default)
        case "VarLenFeature":
            return f.VarLen(dtype)
        case "FixedLenSequenceFeature":
            return f.FixedLenSequence(shape, dtype, spec.get("allow_missing", False), default)
        case "RaggedFeature":
            partitions = [eval(p, vars(f)) for p in spec.get("partitions", [])]
            validate = True if "validate" in name else None
            splits = spec["row_splits_dtype"]
            return f.Ragged(dtype, spec.get("value_key"), partitions, splits, validate)
        case "SparseFeature":
            keys, size = spec["index_key"], spec["size"]
            return f.Sparse(keys, spec["value_key"], dtype, size, "flagged" in name)
    raise AssertionError(spec)


def schema_of(case: dict[str, Any]) -> dict[str, Any]:
    """The schema of a golden case."""
    if "sequence" not in case:
        return {key: feature(spec, case["name"]) for key, spec in (case["spec"] or {}).items()}
    context = {key: feature(spec) for key, spec in case["context"].items()}
    return context | {key: f.Sequence(feature(spec)) for key, spec in case["sequence"].items()}


# Decoded columns as TensorFlow's tensors


def tensors(batch: pa.RecordBatch, schema: dict[str, Any]) -> dict[str, Any]:
    """Each column in the form in which the golden files store its tensor."""
    return {name: _tensor(batch.column(name), given) for name, given in schema.items()}


def _tensor(column: Any, given: Any) -> dict[str, Any]:
    inner = given.feature if isinstance(given, f.Sequence) else given
    dtype = {"float": "float32", "binary": "string"}.get(str(inner.dtype), str(inner.dtype))
    rows = plain(column.to_pylist())
    assert column.null_count == 0
    match given:
        case f.FixedLen():
            rows = [_nested(row, given.shape) if given.shape else row for row in rows]
            return {"dense": rows, "shape": [len(rows), *given.shape], "dtype": dtype}
        case f.FixedLenSequence() | f.Sequence(f.FixedLenSequence()):
            return _padded(rows, inner) | {"dtype": dtype}
        case f.Ragged() | f.Sequence(f.Ragged()):
            return {"ragged": rows, "dtype": dtype}
        case f.VarLen():
            entries = [([r, i], v) for r, row in enumerate(rows) for i, v in enumerate(row)]
            size = [len(rows), max(map(len, rows), default=0)]
        case f.Sparse():
            entries = [
                ([r, *(ix if isinstance(ix, list) else [ix])], v)
                for r, row in enumerate(rows)
                for ix, v in zip(row["indices"], row["values"], strict=True)
            ]
            size = [len(rows), *given.size]
        case _:
            entries = [
                ([r, n, i], v)
                for r, row in enumerate(rows)
                for n, frame in enumerate(row)
                for i, v in enumerate(frame)
            ]
            widest = max((len(frame) for row in rows for frame in row), default=0)
            size = [len(rows), max(map(len, rows), default=0), widest]
    indices, values = [e[0] for e in entries], [e[1] for e in entries]
    sparse = {"indices": indices, "values": plain(values), "dense_shape": size}
    return {"sparse": sparse, "dtype": dtype}


def _nested(flat: list[Any], shape: Sequence[int]) -> Any:
    if len(shape) <= 1:
        return flat
    step = len(flat) // shape[0]
    return [_nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _padded(rows: list[Any], given: Any) -> dict[str, Any]:
    fill = (
        given.default[0] if given.default else {"int64": 0, "float": 0.0}.get(str(given.dtype), b"")
    )
    for size in reversed(given.shape):
        fill = [fill] * size
    longest = max(map(len, rows), default=0)
    dense = [row + [fill] * (longest - len(row)) for row in rows]
    return {"dense": dense, "shape": [len(rows), longest, *given.shape]}
