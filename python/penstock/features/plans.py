"""Plans how to decode the features of a schema, and describes an Arrow schema as TensorFlow features."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

import penstock.features._types as f
from penstock.columns.inferred import in_every_record
from penstock.errors import SchemaError, UnsupportedError
from penstock.features._ragged import partitioned, partitioned_frames, rows_of, sparse
from penstock.payloads.example.inference import innermost
from penstock.payloads.example.plans import (
    CONTEXT_PREFIX,
    IN_LISTS_KEY,
    LISTS_PREFIX,
    WIRE_KEY,
    FieldPlan,
    Wire,
    wire_key,
)
from penstock.payloads.example.sequence_parts import part_and_key

FEATURE_KEY = b"penstock.feature"
"""Metadata key of a field that was given as a feature. The value is the feature in TensorFlow's notation."""

_FORMS: dict[Any, str] = {
    f.RowLengths: "lengths",
    f.RowSplits: "splits",
    f.RowStarts: "starts",
    f.RowLimits: "limits",
    f.ValueRowIds: "row_ids",
}


def kernel_dialect(schema: Mapping[str, f.Feature], dialect: str) -> str:
    """The dialect in which to decode records. It does not depend on the columns that are read. TensorFlow has another
    parser for SequenceExamples, which is needed if the schema has feature lists."""
    if dialect == "tensorflow" and any(isinstance(x, f.Sequence) for x in schema.values()):
        return "tensorflow_sequence"
    return dialect


def plan_fields(
    schema: Mapping[str, f.Feature], dialect: str = "protobuf", parts: Container[str] = ()
) -> list[FieldPlan]:
    """Plan how the columns of a schema are decoded, in the schema's order.

    The dialect is "protobuf", "tensorflow", or "tensorflow_sequence" for the context of SequenceExamples. `parts` has
    the column names that consist of a part of a SequenceExample and a key in that part, such as "context/id"
    (`sequence_parts.names_of_parts`). If `finish` of a plan raises a SchemaError, its `record` is an index in the
    batch. In TensorFlow's dialect, a schema that TensorFlow refuses raises a ValueError.
    """
    for name, feature in schema.items():
        if not isinstance(feature, f.Feature):
            raise TypeError(
                f"schema[{name!r}] is {feature!r}, not a feature such as "
                'penstock.features.FixedLen([], "int64")'
            )
    dialect = kernel_dialect(schema, dialect)
    if dialect != "protobuf":
        _check_as_tensorflow(schema, dialect, parts)
    return [
        _plan(name, _key(name, schema, parts), feature, strict=dialect == "protobuf")
        for name, feature in schema.items()
    ]


def _key(name: str, schema: Mapping[str, f.Feature], parts: Container[str]) -> str:
    """The key in the record: the name without the prefix of a part."""
    part = part_and_key(name)
    if part is None:
        return name
    in_lists, key = part
    if (CONTEXT_PREFIX if in_lists else LISTS_PREFIX) + key in schema:
        return key
    if name not in parts:
        return name
    if in_lists != isinstance(schema[name], f.Sequence):
        is_or_not = "is a feature list" if in_lists else "is a feature of the context"
        other = "penstock.features.Sequence(...)" if in_lists else "the feature within the Sequence"
        raise SchemaError(f"the record's field {is_or_not}", field=name, hint=other)
    return key


def _check_as_tensorflow(
    schema: Mapping[str, f.Feature], dialect: str, parts: Container[str]
) -> None:
    if not schema:
        raise ValueError("TensorFlow does not parse an empty schema")
    keys: dict[tuple[bool, str], str] = {}
    for name, given in schema.items():
        in_lists = isinstance(given, f.Sequence)
        feature = given.feature if isinstance(given, f.Sequence) else given
        if not in_lists and isinstance(feature, f.FixedLenSequence):
            if dialect == "tensorflow_sequence":
                raise ValueError(f"{name}: TensorFlow has no FixedLenSequence in a context")
            if not feature.allow_missing:
                raise ValueError(f"{name}: FixedLenSequence needs allow_missing in TensorFlow")
        if isinstance(feature, f.Sparse) and dialect == "tensorflow_sequence":
            raise ValueError(f"{name}: TensorFlow has no Sparse in a context")
        group = _group(feature)
        for wire in _wires(_key(name, schema, parts), feature, in_lists=in_lists, strict=False):
            if keys.setdefault((in_lists, wire.key), group) != group:
                raise ValueError(
                    f"{name}: TensorFlow does not read the key {wire.key!r} in two forms"
                )


def _group(feature: f.Feature) -> str:
    if isinstance(feature, (f.FixedLen, f.FixedLenSequence)):
        return "dense"
    return "ragged" if isinstance(feature, f.Ragged) else "sparse"


def _plan(name: str, key: str, given: f.Feature, *, strict: bool) -> FieldPlan:
    in_lists = isinstance(given, f.Sequence)
    feature = given.feature if isinstance(given, f.Sequence) else given
    wires = _wires(key, feature, in_lists=in_lists, strict=strict)
    kind, finish = _finish(name, feature, in_lists=in_lists, strict=strict)
    metadata = {FEATURE_KEY: _as_tensorflow(feature).encode()}
    if in_lists:
        metadata[IN_LISTS_KEY] = b"1"
    if name != key or key.startswith((CONTEXT_PREFIX, LISTS_PREFIX)):
        metadata[WIRE_KEY] = key.encode()
    nullable = any(w.default is None and not w.required for w in wires)
    return FieldPlan(pa.field(name, kind, nullable=nullable, metadata=metadata), wires, finish)


# Complexity: one branch for each kind of feature.
def _wires(key: str, feature: f.Feature, *, in_lists: bool, strict: bool) -> tuple[Wire, ...]:
    """The columns that the kernel decodes for a feature, the column of values first. A missing feature becomes null in
    protobuf's dialect (`strict`), and an empty list in TensorFlow's."""
    if isinstance(feature, f.Sequence):
        raise TypeError("a feature list cannot be inside a feature list")
    wire = partial(
        Wire,
        kind=f.KINDS[feature.dtype],
        in_lists=in_lists,
        strings="text" if feature.dtype == pa.string() else "bytes",
        default=None if strict else (),
    )
    lists = "frame_lists" if in_lists else "list"
    keys: Sequence[str] = ()
    if isinstance(feature, f.FixedLen):
        size = math.prod(feature.shape)
        # TensorFlow ignores a default that has no values.
        default = feature.default if size or strict else None
        layout = "fixed" if feature.shape else "scalar"
        return (wire(key, layout=layout, size=size, required=default is None, default=default),)
    if isinstance(feature, f.FixedLenSequence):
        rows = wire(key, layout="frame_rows" if in_lists else "rows", size=math.prod(feature.shape))
        return (rows if feature.allow_missing else replace(rows, required=True, default=None),)
    if isinstance(feature, f.Ragged):
        key = feature.value_key or key
        keys = [p.key for p in feature.partitions if isinstance(p, f.KeyedPartition)]
    if isinstance(feature, f.Sparse):
        key, keys = feature.value_key, feature.index_key
    numbers = [Wire(k, "int64", lists, in_lists=in_lists, default=()) for k in keys]
    return (wire(key, layout=lists), *numbers)


_Finish = Callable[[Sequence[Any]], Any]


def _finish(
    name: str, feature: Any, *, in_lists: bool, strict: bool
) -> tuple[pa.DataType, _Finish]:
    """The type of a field, and a function that builds its array from the decoded columns."""
    dtype: pa.DataType = feature.dtype
    if isinstance(feature, f.FixedLen):
        if not feature.shape:
            return dtype, lambda arrays: arrays[0]
        tensor = pa.fixed_shape_tensor(dtype, feature.shape)
        return tensor, lambda arrays: pa.ExtensionArray.from_storage(tensor, arrays[0])
    if isinstance(feature, f.FixedLenSequence):
        shape = feature.shape
        if not shape:
            return pa.list_(dtype), lambda arrays: arrays[0]
        element = dtype
        for size in reversed(shape):
            element = pa.list_(element, size)
        return pa.list_(element), lambda arrays: rows_of(arrays[0], shape)
    if isinstance(feature, f.Sparse):
        return _finish_sparse(name, feature, strict=strict)
    depth = 1 + in_lists + (len(feature.partitions) if isinstance(feature, f.Ragged) else 0)
    kind = dtype
    for _ in range(depth):
        kind = pa.list_(kind)
    if isinstance(feature, f.VarLen) or not feature.partitions:
        return kind, lambda arrays: arrays[0]
    validate = strict if feature.validate is None else feature.validate
    return kind, lambda arrays: _join_rows(
        name, feature.partitions, arrays, in_lists=in_lists, validate=validate, strict=strict
    )


def _finish_sparse(name: str, feature: f.Sparse, *, strict: bool) -> tuple[pa.DataType, _Finish]:
    index = pa.int64() if len(feature.size) == 1 else pa.list_(pa.int64(), len(feature.size))
    kind = pa.struct([("indices", pa.list_(index)), ("values", pa.list_(feature.dtype))])

    def finish(arrays: Sequence[Any]) -> Any:
        return sparse(
            name,
            arrays[1:],
            arrays[0],
            size=feature.size if strict else None,
            already_sorted=feature.already_sorted,
        )

    return kind, finish


def _join_rows(
    name: str,
    partitions: Sequence[Any],
    arrays: Sequence[Any],
    *,
    in_lists: bool,
    validate: bool,
    strict: bool,
) -> Any:
    keyed = iter(arrays[1:])
    forms = _FORMS if strict else {**_FORMS, f.RowStarts: "starts_or_none"}
    given = [
        ("uniform", p.length)
        if isinstance(p, f.UniformRowLength)
        else (forms[type(p)], next(keyed))
        for p in partitions
    ]
    if not in_lists:
        return partitioned(name, arrays[0], given, validate=validate)
    return partitioned_frames(name, arrays[0], given, validate=validate)


def describe(schema: pa.Schema) -> str:
    """Write the schema of a TFRecord as a TensorFlow feature description, in Python source text.

    Returns:
        A dict for `tf.io.parse_example`, or for SequenceExamples assignments of `context_features` and
        `sequence_features`. A scalar or tensor that may be missing becomes a VarLenFeature, because a FixedLenFeature
        refuses records without it. In an inferred schema, a scalar that every examined record has becomes a
        FixedLenFeature. A column without any value becomes a comment.

    Raises:
        UnsupportedError: no feature matches the type of a column.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.features import describe
        >>> fields = [pa.field("id", pa.int64(), nullable=False), ("tags", pa.list_(pa.binary()))]
        >>> print(describe(pa.schema(fields)))
        {
            'id': tf.io.FixedLenFeature([], tf.int64),
            'tags': tf.io.VarLenFeature(tf.string),
        }
    """
    everywhere = in_every_record(schema)
    schema = pa.schema(
        [field.with_nullable(field.nullable and field.name not in everywhere) for field in schema]
    )
    lists = [field for field in schema if _is_feature_list(field)]
    context = [field for field in schema if not _is_feature_list(field)]
    if not lists:
        return _dict(context)
    parts = [("context_features", context), ("sequence_features", lists)]
    return "\n".join(f"{name} = {_dict(part)}" for name, part in parts)


def _dict(fields: Sequence[pa.Field]) -> str:
    lines = [f"    {_line(field)}" for field in fields]
    return "\n".join(["{", *lines, "}"]) if lines else "{}"


def _line(field: pa.Field) -> str:
    metadata = field.metadata or {}
    key = wire_key(field)
    if innermost(field.type) == pa.null():
        return f"# {key!r}: no value was seen"
    given = metadata.get(FEATURE_KEY)
    return f"{key!r}: {given.decode() if given else _as_tensorflow(_feature_of(field))},"


def _is_feature_list(field: pa.Field) -> bool:
    metadata = field.metadata or {}
    if IN_LISTS_KEY in metadata or FEATURE_KEY in metadata:
        return IN_LISTS_KEY in metadata
    return pa.types.is_list(field.type) and pa.types.is_list(field.type.value_type)


# Complexity: one branch for each kind of type.
def _feature_of(field: pa.Field) -> Any:
    type_ = field.type
    if isinstance(type_, pa.FixedShapeTensorType):
        dtype = type_.value_type
        return f.VarLen(dtype) if field.nullable else f.FixedLen(list(type_.shape), dtype)
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    has_frames = _is_feature_list(field)
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if is_list:
        type_ = type_.value_type
        if has_frames and pa.types.is_list(type_):
            return f.VarLen(_value_type(field, type_.value_type))
    shape: list[int] = []
    while pa.types.is_fixed_size_list(type_):
        shape.append(type_.list_size)
        type_ = type_.value_type
    dtype = _value_type(field, type_)
    if is_list and (shape or has_frames):
        return f.FixedLenSequence(shape, dtype, allow_missing=field.nullable)
    if is_list or field.nullable:
        return f.VarLen(dtype)
    return f.FixedLen(shape, dtype)


def _value_type(field: pa.Field, kind: pa.DataType) -> pa.DataType:
    try:
        return f.value_type(kind)
    except TypeError:
        raise UnsupportedError(
            f"{field.type} has no TensorFlow feature", field=field.name
        ) from None


_TF_TYPES = {pa.int64(): "tf.int64", pa.float32(): "tf.float32"}


def _as_tensorflow(feature: Any) -> str:
    dtype = _TF_TYPES.get(feature.dtype, "tf.string")
    if isinstance(feature, f.VarLen):
        return f"tf.io.VarLenFeature({dtype})"
    if isinstance(feature, f.Sparse):
        more = ", already_sorted=True" if feature.already_sorted else ""
        keys, size = list(feature.index_key), list(feature.size)
        return (
            f"tf.io.SparseFeature(index_key={keys!r}, value_key={feature.value_key!r}, "
            f"dtype={dtype}, size={size}{more})"
        )
    if isinstance(feature, f.Ragged):
        return f"tf.io.RaggedFeature({dtype}{_ragged_options(feature)})"
    more = ""
    if isinstance(feature, f.FixedLenSequence) and feature.allow_missing:
        more = ", allow_missing=True"
    if feature.default is not None:
        values = list(feature.default)
        scalar = not feature.shape or isinstance(feature, f.FixedLenSequence)
        more += f", default_value={values[0] if scalar else values!r}"
    word = type(feature).__name__
    return f"tf.io.{word}Feature({list(feature.shape)}, {dtype}{more})"


def _ragged_options(feature: f.Ragged) -> str:
    more = "" if feature.value_key is None else f", value_key={feature.value_key!r}"
    if feature.partitions:
        parts = ", ".join(
            f"tf.io.RaggedFeature.{type(p).__name__}"
            f"({p.length if isinstance(p, f.UniformRowLength) else repr(p.key)})"
            for p in feature.partitions
        )
        more += f", partitions=[{parts}]"
    if feature.row_splits_dtype != "int32":
        more += f", row_splits_dtype=tf.{feature.row_splits_dtype}"
    return more + (", validate=True" if feature.validate else "")
