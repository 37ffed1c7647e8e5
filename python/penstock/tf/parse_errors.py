"""Converts the kernel's faults to the errors of TensorFlow's parsers.

All are InvalidArgumentErrors, except for limits. If a record has several faults, TensorFlow may report another of
them. Bytes in messages are escaped if they are not text; TensorFlow itself fails to make such a message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from penstock import _core
from penstock.contract.faults import kind_of
from penstock.tf.dtypes import int64
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.parse_keys import Dense, Key, Rows, Sparse, ends
from penstock.tf.parse_plans import Plan

_KINDS = {"int64": "int64", "float32": "float", "string": "string"}
"""TensorFlow's names of the types in messages."""
_FOUND = re.compile("holds (int64|float|bytes) values")
_HINT = "parse fewer records at once"


def example_error(
    error: _core.KernelError,
    plan: Plan,
    payloads: Any,
    names: Sequence[Any] | None,
    *,
    single: bool,
) -> Exception:
    """The error of `parse_example`, or of `parse_single_example` if `single`.

    Args:
        error: the kernel's error.
        plan: the plan by which the kernel decoded.
        payloads: the records.
        names: the names of the records, or None.
        single: whether a single record was parsed.
    """
    fault: Any = error.args[0]
    if fault.kind == "limit":
        return _limit_error(fault)
    key = _key(plan, fault.field, in_lists=False)
    record = fault.record or 0
    name = "" if single else f"Name: {_name(names, record)}, "
    if key is None:
        value = _escaped(_payload(payloads, record))
        return _error(f"Could not parse example input, value: '{value}'")
    if fault.message.startswith("no list of a known"):
        return _error(f"Unsupported datatype. ({name}Key: {key.name})")
    if fault.message.startswith("required"):
        return _error(
            f"{name}Feature: {key.name} (data type: {_type(key)}) is required but could not be found."
        )
    place = f"Key: {key.name}.  " if single else f"{name}Key: {key.name}, Index: {record}.  "
    if found := _FOUND.match(fault.message):
        return _error(place + _other_type(key, found[1].replace("bytes", "string")))
    if fault.kind == "schema":
        return _error(_wrong_count(key, place, fault, single=single))
    return _error(f"{place}Can't parse serialized Example.")


# Complexity: TensorFlow's order of checks, one after another.
def sequence_error(
    error: _core.KernelError, plan: Plan, payloads: Any, names: Sequence[Any] | None
) -> Exception:
    """The error of `parse_sequence_example`, with the arguments of `example_error`."""
    fault: Any = error.args[0]
    if fault.kind == "limit":
        return _limit_error(fault)
    key = _sequence_key(plan, fault)
    name = _name(names, fault.record or 0)
    if key is None:
        return _error(f"Invalid protocol message input, example id: {name}")
    is_counted = fault.expected is not None
    is_missing = fault.message.startswith("required")
    if isinstance(key, Dense) and (is_counted or is_missing):
        return _error(_context_count(key, payloads, name, counted=is_counted))
    if isinstance(key, Rows) and is_missing:
        return _error(
            f"Name: {name}, Feature list '{key.name}' is required but could not be found.  Did you mean to "
            "include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
        )
    if isinstance(key, Rows) and is_counted:
        return _error(_frame_count(key, payloads, name, fault))
    expected = f"Data types don't match. Expected type: {_type(key)}"
    if not key.in_lists:
        return _error(f"Name: {name}, Context feature: {key.name}.  {expected}")
    if fault.message.startswith("no frame"):
        return _error(f"Error in sequence feature {key.name} in example {name}")
    return _error(f"Name: {name}, Feature list: {key.name}, Index: {fault.frame}.  {expected}")


def _error(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


def _limit_error(fault: Any) -> Exception:
    return kind_of(fault.kind)(fault.message, record=fault.record, field=fault.field, hint=_HINT)


def _sequence_key(plan: Plan, fault: Any) -> Key | None:
    """The key with a fault. A fault outside a frame may be in the context, or concern a whole feature list."""
    in_lists = fault.frame is not None
    key = _key(plan, fault.field, in_lists=in_lists)
    if not in_lists and (key is None or "required" in fault.message):
        key = _key(plan, fault.field, in_lists=True) or key
    return key


def _key(plan: Plan, field: str | None, *, in_lists: bool) -> Key | None:
    for key in plan.keys:
        if key.in_lists == in_lists and key.encoded().decode("utf-8", "replace") == field:
            return key
    return None


def _type(key: Key) -> str:
    return _KINDS[key.dtype.name]


def _name(names: Sequence[Any] | None, record: int) -> str:
    if names is None:
        return "<unknown>"
    name = names[record]
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _payload(payloads: Any, record: int) -> Any:
    if isinstance(payloads, list):
        return payloads[record]
    if isinstance(payloads, _core.Frames):
        return payloads.payload(record)
    return payloads[record].as_py()


def _escaped(data: Any) -> str:
    return data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")


def _other_type(key: Key, found: str) -> str:
    if isinstance(key, (Dense, Rows)):
        return f"Data types don't match. Data type: {found} but expected type: {_type(key)}"
    return f"Data types don't match. Expected type: {_type(key)}, Actual type: {found}"


def _wrong_count(key: Key, place: str, fault: Any, *, single: bool) -> str:
    kind = "bytes" if _type(key) == "string" else _type(key)
    if isinstance(key, Rows):
        if single:
            return (
                f"Error while parsing feature with key {key.name}: number of elements should be divisible by "
                f"{fault.expected}, found {fault.found} instead"
            )
        return (
            f"{place}Number of {kind} values is not a multiple of stride length. Saw {fault.found} values "
            f"but output shape is: {_shown('?', *key.shape)}"
        )
    shape = _shown(*key.shape) if isinstance(key, Dense) else "[]"
    if single or (kind == "bytes" and fault.found > fault.expected):
        return f"{place}Can't parse serialized Example. It has {fault.found} values for the shape {shape}."
    return f"{place}Number of {kind} values != expected.  Values size: {fault.found} but output shape: {shape}"


def _shown(*sizes: Any) -> str:
    return f"[{','.join(map(str, sizes))}]"


def _context_count(key: Dense, payloads: Any, name: str, *, counted: bool) -> str:
    """TensorFlow first compares the largest number of values of any record with the shape, then the number of each
    record."""
    wanted, most = prod(key.shape), len(key.default or ())
    lengths = _lengths(Sparse(key.name, key.dtype), payloads)
    most = max(most, *lengths) if lengths else most
    if most != wanted:
        return f"Inconsistent max number of elements for feature {key.name}: expected {wanted}, but found {most}"
    if counted:
        return f"Unexpected number of elements in example {name}"
    return f"Feature: {key.name} (data type: {_type(key)}) is required but could not be found."


def _frame_count(key: Rows, payloads: Any, name: str, fault: Any) -> str:
    """TensorFlow first compares the largest number of values of any record with the shape, then each frame."""
    most = max(_lengths(Sparse(key.name, key.dtype, in_lists=True), payloads), default=0)
    if most % prod(key.shape):
        return (
            f"Feature list '{key.name}' has an unexpected number of values.  Total values size: {most} is not "
            f"consistent with output shape: {_shown('?', *key.shape)}"
        )
    return (
        f"Name: {name}, Key: {key.name}, Index: {fault.frame}.  Number of values != expected.  "
        f"values size: {fault.found} but output shape: {_shown(*key.shape)}"
    )


def _lengths(key: Sparse, payloads: Any) -> list[int]:
    """The number of values of each record under a key; empty if they cannot be counted."""
    from penstock.payloads.example.plans import example_plan

    core = example_plan([key.wire()], "tensorflow_sequence", [key.encoded()])
    try:
        _, lists, frames = _core.decode_tensors(core, payloads, [])[0]
    except _core.KernelError:
        return []
    where = ends(lists)
    if frames is not None:
        where = ends(frames)[where]
    return (where[1:] - where[:-1]).astype(int64.dtype).tolist()
