"""`tf.io.parse_example` and similar functions: from serialized records to tensors, by TensorFlow's rules.

One call of the kernel decodes a whole batch (`_core.decode_tensors`), and its result becomes tensors without a loop
over records. The functions for a batch and for one record differ as in TensorFlow: a single record is never padded,
an entry without a list of any kind never replaces an earlier entry, and errors do not name the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock import _core
from penstock.columns.types import is_bytes
from penstock.tf import probing
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.features import PARTITIONS, RaggedFeature
from penstock.tf.parse_errors import example_error, sequence_error
from penstock.tf.parse_keys import Dense, Rows
from penstock.tf.parse_plans import CONTEXT, EXAMPLE, LISTS, Plan
from penstock.tf.placeholders import of_parsed, of_sequences
from penstock.tf.probing import NotRecorded
from penstock.tf.recognised import Recorded
from penstock.tf.tensor import convert_to_tensor

Features = Mapping[str, Any]


def parse_example(
    serialized: Any, features: Features, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    r"""Parse a batch of serialized Examples.

    Args:
        serialized: strings [batch], or one string, which is parsed as by `parse_single_example`.
        features: a `tf.io.FixedLenFeature` or another kind for each key.
        example_names: strings of the shape of `serialized`, for errors.
        name: ignored.

    Returns:
        A tensor for each feature: dense [batch] + shape for FixedLenFeature, [batch, longest] + shape for
        FixedLenSequenceFeature, a SparseTensor for VarLenFeature and SparseFeature, a RaggedTensor for
        RaggedFeature. A key whose entry has no list of any kind counts as missing; an empty list does not.
        As in TensorFlow, runs of packed values after the first are not read.

    Raises:
        InvalidArgumentError: a record that is not an Example, lacks a feature without a default, or has values that
            do not fit the feature. ValueError, TypeError: invalid features.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import FixedLenFeature
        >>> from penstock.tf.parsing import parse_example
        >>> a = b"\n\x0c\n\n\n\x01a\x12\x05\x1a\x03\n\x01\x07"
        >>> parse_example([a, b""], {"a": FixedLenFeature([], tf.int64, -1)})["a"].numpy()
        array([ 7, -1])
    """
    if not features:
        raise ValueError(f"Argument `features` cannot be None or falsy. Got {features}")
    if isinstance(serialized, Recorded):
        return _recorded(serialized, features, example_names)
    if probing.is_on():
        return of_parsed(features, list(np.shape(serialized)))
    payloads, alone = _payloads(serialized)
    names = None if example_names is None else _names(example_names, payloads, alone)
    if alone:
        return _single(payloads, features)
    return _batch(payloads, features, names)


def parse_single_example(
    serialized: Any, features: Features, example_names: Any = None, name: str | None = None
) -> dict[str, Any]:
    """Parse one serialized Example.

    Args:
        serialized: a string.
        features, example_names, name: as for `parse_example`.

    Returns:
        A tensor for each feature: dense of its shape for FixedLenFeature, [n] + shape for
        FixedLenSequenceFeature, a SparseTensor [n] for VarLenFeature and of its size for SparseFeature, a
        RaggedTensor for RaggedFeature with partitions, a dense tensor [n] without.

    Raises:
        ValueError: a batch, or invalid features. InvalidArgumentError: as `parse_example`.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import VarLenFeature
        >>> from penstock.tf.parsing import parse_single_example
        >>> parse_single_example(b"", {"a": VarLenFeature(tf.int64)})["a"].shape
        TensorShape([0])
    """
    if not features:
        empty = "None" if features is None else "empty"  # pyright: ignore[reportUnnecessaryComparison]
        raise ValueError(f"Invalid argument: features cannot be {empty}.")
    if isinstance(serialized, Recorded):
        if serialized.is_batch:
            raise NotRecorded("a batch")
        return _recorded(serialized, features, example_names)
    if probing.is_on():
        return of_parsed(features, [])
    payloads, alone = _payloads(serialized)
    if not alone:
        raise ValueError("Input serialized must be a scalar")
    if example_names is not None:
        _names(example_names, payloads, alone)
    return _single(payloads, features)


def parse_batch(
    serialized: Any, features: Features, names: Sequence[Any] | None = None
) -> dict[str, Any]:
    """Parse a batch from Arrow memory or from a chunk of a file, without copying it.

    Args:
        serialized: a list of bytes, a binary array, a record batch with one such column, `_core.Frames`, or
            what `parse_example` takes.
        features: as for `parse_example`.
        names: the names of the records, for errors.

    Returns:
        As `parse_example`.

    Raises:
        TypeError: the array does not hold bytes. Also the errors of `parse_example`.
    """
    if hasattr(serialized, "num_columns"):
        serialized = serialized.column(0)
    if hasattr(serialized, "__arrow_c_array__"):
        if not is_bytes(serialized.type):
            raise TypeError(f"serialized records are bytes, not {serialized.type}")
    elif type(serialized) is not list and not isinstance(serialized, _core.Frames):
        return parse_example(serialized, features, names)
    return _batch(serialized, features, names)


def parse_sequence_example(
    serialized: Any,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    example_names: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Parse a batch of serialized SequenceExamples, or one.

    Args:
        serialized: strings [batch], or one string.
        context_features: FixedLenFeature, VarLenFeature and RaggedFeature by key of the context.
        sequence_features: FixedLenSequenceFeature, VarLenFeature and RaggedFeature by key of the lists.
        example_names: strings, as many as records, for errors.
        name: ignored.

    Returns:
        The context as `parse_example` gives it; the feature lists: dense [batch, most frames] + shape,
        padded with zeros, sparse [batch, most frames, most values], ragged [batch, frames, values];
        and the number of frames in each record, int64 [batch], for each dense list. For one string, all
        without the first dimension.

    Raises:
        InvalidArgumentError: a record that does not fit. ValueError: invalid features.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import FixedLenSequenceFeature
        >>> from penstock.tf.parsing import parse_sequence_example
        >>> lists = {"x": FixedLenSequenceFeature([], tf.int64, allow_missing=True)}
        >>> context, found, lengths = parse_sequence_example([b""], None, lists)
        >>> context, found["x"].shape, lengths["x"].numpy()
        ({}, TensorShape([1, 0]), array([0]))
    """
    if isinstance(serialized, Recorded):
        raise NotRecorded("parse_sequence_example")
    if not (context_features or sequence_features):
        raise ValueError(
            "Both `context_features` and `sequence_features` argument are None, but at least one should have values."
        )
    if probing.is_on():
        return of_sequences(serialized, context_features, sequence_features)
    payloads, alone = _payloads(serialized)
    return _sequence(
        payloads, alone, context_features or {}, sequence_features or {}, example_names
    )


def parse_single_sequence_example(
    serialized: Any,
    context_features: Features | None = None,
    sequence_features: Features | None = None,
    example_name: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse one serialized SequenceExample.

    Args:
        serialized: a string.
        context_features, sequence_features, name: as for `parse_sequence_example`.
        example_name: a string, for errors.

    Returns:
        The context as `parse_single_example` gives it, and the feature lists: dense [frames] + shape,
        sparse [frames, most values], ragged [frames, values].

    Raises:
        ValueError: a batch, or invalid features. InvalidArgumentError: a record that does not fit.

    Example:
        >>> import penstock.tf as tf
        >>> from penstock.tf.features import VarLenFeature
        >>> from penstock.tf.parsing import parse_single_sequence_example
        >>> _, lists = parse_single_sequence_example(b"", None, {"x": VarLenFeature(tf.string)})
        >>> lists["x"].shape
        TensorShape([0, 0])
    """
    if isinstance(serialized, Recorded):
        raise NotRecorded("parse_single_sequence_example")
    if not (context_features or sequence_features):
        raise ValueError(
            "Both context_features and sequence_features are None, but at least one should have values."
        )
    if probing.is_on():
        return of_sequences(serialized, context_features, sequence_features)[:2]
    payloads, alone = _payloads(serialized)
    if not alone:
        raise ValueError("Input serialized must be a scalar")
    found = _sequence(
        payloads, alone, context_features or {}, sequence_features or {}, example_name
    )
    return found[:2]


# -- arguments -----------------------------------------------------------------------------------


def _payloads(serialized: Any) -> tuple[list[bytes], bool]:
    """The serialized records as a list of bytes, and whether it was a single string."""
    if isinstance(serialized, bytes):
        return [serialized], True
    if isinstance(serialized, np.ndarray) and serialized.dtype == object:
        found: Any = serialized.tolist()
        rank = serialized.ndim
    else:
        strings = convert_to_tensor(serialized, dtype="string") if _is_text(serialized) else None
        if strings is None:
            raise ValueError(
                f"Tensor conversion requested dtype string for serialized records: {serialized!r}"
            )
        found, rank = strings.tolist(), strings.ndim
    if rank > 1:
        raise InvalidArgumentError(
            None,
            None,
            f"Expected serialized to be a scalar or vector, got shape: {np.shape(serialized)}",
        )
    return (found, False) if rank else ([found], True)


def _is_text(value: Any) -> bool:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.kind in "SUO"
    if isinstance(value, (list, tuple)):
        return bool(value) and _is_text(value[0])
    return isinstance(value, (str, bytes))


def _names(names: Any, payloads: list[bytes], alone: bool) -> list[Any] | None:
    given = convert_to_tensor(names, dtype="string")
    shape: tuple[int, ...] = () if alone else (len(payloads),)
    if tuple(given.shape) != shape and given.size:
        raise InvalidArgumentError(
            None,
            None,
            "Expected names have the same shape as serialized: "
            f"name.shape={list(given.shape)}, serialized.shape={list(shape)}",
        )
    return given.reshape(-1).tolist() if given.size else None


def _recorded(serialized: Recorded, features: Features, names: Any) -> dict[str, Any]:
    if names is not None:
        raise NotRecorded("example_names")
    _plan_of("tensorflow", features)
    return serialized.parse(features)


# -- results -------------------------------------------------------------------------------------


def _decode(plan: Plan, payloads: Any) -> tuple[list[Any], Any]:
    """The decoded columns, and the records in the form that the kernel accepts."""
    try:
        return _core.decode_tensors(plan.core, payloads, plan.sparse), payloads
    except TypeError:
        if not isinstance(payloads, list):
            raise
    # Not all of the objects are bytes; some may be text.
    payloads = convert_to_tensor(payloads, dtype="string").tolist()
    return _core.decode_tensors(plan.core, payloads, plan.sparse), payloads


def _single(payloads: list[bytes], features: Features) -> dict[str, Any]:
    plan = _plan_of("tensorflow_single", features)
    try:
        columns, payloads = _decode(plan, payloads)
    except _core.KernelError as error:
        raise example_error(error, plan, payloads, None, single=True) from None
    keys, composites = plan.groups[0]
    found = {key.name: key.single(parts) for key, parts in zip(keys, columns, strict=True)}
    return found if composites is None else composites.put(found)


def _batch(payloads: Any, features: Features, names: Sequence[Any] | None) -> dict[str, Any]:
    if not features:
        raise ValueError(f"Argument `features` cannot be None or falsy. Got {features}")
    plan = _plan_of("tensorflow", features)
    try:
        columns, payloads = _decode(plan, payloads)
    except _core.KernelError as error:
        raise example_error(error, plan, payloads, names, single=False) from None
    count = len(payloads)
    keys, composites = plan.groups[0]
    found = {key.name: key.batch(parts, count) for key, parts in zip(keys, columns, strict=True)}
    return found if composites is None else composites.put(found)


def _sequence(
    payloads: list[bytes], alone: bool, context: Features, lists: Features, names: Any
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    plan = _plan_of("tensorflow_sequence", context, lists)
    if names is not None:
        given = convert_to_tensor(names, dtype="string").reshape(-1).tolist()
        if given and len(given) != len(payloads):
            raise InvalidArgumentError(
                None,
                None,
                "example_names must be empty or have the correct number of elements: "
                f"{len(given)} for {len(payloads)} records",
            )
        names = given or None
    try:
        columns, payloads = _decode(plan, payloads)
    except _core.KernelError as error:
        raise sequence_error(error, plan, payloads, names) from None
    _check_empty(plan, payloads)
    parts, count = iter(columns), len(payloads)
    found: list[dict[str, Any]] = []
    lengths: dict[str, Any] = {}
    for keys, composites in plan.groups:
        tensors: dict[Any, Any] = {}
        for key in keys:
            part = next(parts)
            tensors[key.name] = key.single(part) if alone else key.batch(part, count)
            if isinstance(key, Rows):
                counted = key.lengths(part)
                lengths[key.name] = counted[0] if alone else counted
        found.append(tensors if composites is None else composites.put(tensors))
    return found[0], found[1], lengths


def _check_empty(plan: Plan, payloads: list[bytes]) -> None:
    """Raise TensorFlow's error, because TensorFlow checks the number of values of dense context features even without
    records."""
    for key in plan.keys if not payloads else ():
        if isinstance(key, Dense) and not key.default and 0 not in key.shape:
            wanted = int(np.prod(key.shape))
            raise InvalidArgumentError(
                None,
                None,
                f"Inconsistent max number of elements for feature {key.name}: expected {wanted}, but found 0",
            )


# -- the cache of plans --------------------------------------------------------------------------

_MAX_PLANS = 256
_plans: dict[Any, list[tuple[tuple[Features, ...], Any, Plan]]] = {}
"""Plans by the dialect, keys and kinds of features. An entry has copies of the features, the kinds of their partitions,
and the plan."""


def _plan_of(dialect: str, *groups: Features) -> Plan:
    """The plan for these features, which may be new objects in every call, or objects that were changed."""
    try:
        where = (
            dialect,
            *(part for group in groups for part in (*group, *map(type, group.values()))),
        )
        for known, kinds, plan in _plans.get(where, ()):
            if _same(known, groups) and (kinds is None or kinds == _partition_kinds(groups)):
                return plan
    except TypeError:  # keys that cannot be hashed
        where = None
    allowed = (EXAMPLE,) if len(groups) == 1 else (CONTEXT, LISTS)
    plan = Plan(list(zip(groups, allowed, strict=True)), dialect)
    if where is not None:
        _remember(where, groups, plan)
    return plan


def _remember(where: Any, groups: tuple[Features, ...], plan: Plan) -> None:
    if len(_plans) >= _MAX_PLANS:
        _plans.clear()
    kinds = _partition_kinds(groups)
    known = tuple({key: _copied(f) for key, f in features.items()} for features in groups)
    _plans[where] = [(known, kinds, plan), *_plans.get(where, [])[:3]]


def _same(known: tuple[Features, ...], groups: tuple[Features, ...]) -> bool:
    try:
        return known == groups
    except ValueError:  # a list is compared with an array
        return False


def _partition_kinds(groups: tuple[Features, ...]) -> Any:
    """The kinds of partitions, because equality of tuples ignores them; None if there are no partitions."""
    return [
        [type(partition) for partition in feature.partitions]
        for features in groups
        for feature in features.values()
        if isinstance(feature, RaggedFeature)
    ] or None


def _copied(feature: Any) -> Any:
    """A copy of a feature and of its lists and arrays."""
    if isinstance(feature, RaggedFeature):
        return feature
    return type(feature)(*(_copy(part) for part in feature))


def _copy(part: Any) -> Any:
    if isinstance(part, (list, tuple)) and not isinstance(part, PARTITIONS):
        return type(part)(_copy(value) for value in part)
    return _Array(part) if isinstance(part, np.ndarray) else part


class _Array:
    """A copy of an array, equal to an array of the same dtype and values."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = np.array(array)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, np.ndarray) and other.dtype == self.array.dtype
        return same and np.array_equal(np.asarray(other), self.array)

    __hash__ = None  # type: ignore[assignment]
