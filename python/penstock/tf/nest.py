"""Structures: tuples, dicts, named tuples and, for `tf.nest`, lists, with values at their leaves.

Dicts are traversed in the order of their sorted keys. In datasets a list is not a structure, because it will become a
tensor: functions with `lists=False` treat it as a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from penstock.tf.missing import absent_from


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_nested(value: Any, *, lists: bool = True) -> bool:
    """Whether a value is a structure and not a leaf.

    Example:
        >>> import penstock.tf as tf
        >>> tf.nest.is_nested({"a": 1}), tf.nest.is_nested(1)
        (True, False)
    """
    return (type(value) is list and lists) or (
        isinstance(value, (tuple, Mapping)) and not _is_shape(value)
    )


def _is_shape(value: Any) -> bool:
    # A shape is a tuple in Python, but a leaf here.
    return type(value).__name__ == "TensorShape"


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return (value[key] for key in _sorted_keys(value))
    return value


def _sorted_keys(value: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(value)
    except TypeError:
        raise TypeError(f"nest only supports dicts with sortable keys, not {list(value)}") from None


def flatten(structure: Any, expand_composites: bool = False, *, lists: bool = True) -> list[Any]:
    """The leaves of a structure, those of a dict in the order of its sorted keys.

    Example:
        >>> import penstock.tf as tf
        >>> tf.nest.flatten({"b": [1, 2], "a": (3,)})
        [3, 1, 2]
    """
    if not is_nested(structure, lists=lists):
        return [structure]
    found: list[Any] = []
    for child in _children(structure):
        if is_nested(child, lists=lists):
            found.extend(flatten(child, lists=lists))
        else:
            found.append(child)
    return found


def pack_sequence_as(structure: Any, flat_sequence: Iterable[Any], *, lists: bool = True) -> Any:
    """The same structure with other leaves, in the order of `flatten`.

    Raises:
        ValueError: too many or too few leaves.

    Example:
        >>> import penstock.tf as tf
        >>> tf.nest.pack_sequence_as({"b": 0, "a": 0}, [1, 2])
        {'b': 2, 'a': 1}
    """
    leaves = list(flat_sequence)
    left = iter(leaves)
    try:
        packed = _packed(structure, left, lists)
    except StopIteration:
        packed = left = None
    if left is None or next(left, left) is not left:
        wanted = len(flatten(structure, lists=lists))
        raise ValueError(
            f"Could not pack sequence. Structure had {wanted} atoms, but flat_sequence had {len(leaves)} items."
        )
    return packed


def _packed(structure: Any, leaves: Any, lists: bool) -> Any:
    if not is_nested(structure, lists=lists):
        return next(leaves)
    if isinstance(structure, Mapping):
        made = {key: _packed(structure[key], leaves, lists) for key in _sorted_keys(structure)}
        ordered = {key: made[key] for key in structure}
        return ordered if type(structure) is dict else _as_mapping(structure, ordered)
    made = [_packed(child, leaves, lists) for child in structure]
    return rebuilt(structure, made)


def _as_mapping(like: Any, items: dict[Any, Any]) -> Any:
    factory = getattr(like, "default_factory", None)
    return type(like)(factory, items) if factory is not None else type(like)(items)


def rebuilt(like: Any, children: list[Any]) -> Any:
    """Children as a tuple or list of the same type as `like`."""
    if _is_namedtuple(like):
        return type(like)(*children)
    return type(like)(children) if isinstance(like, (list, tuple)) else tuple(children)


def packer(structure: Any) -> Callable[[tuple[Any, ...]], Any]:
    """A function that packs a tuple of leaves into a structure. It is fast for common structures."""
    if not is_nested(structure, lists=False):
        return lambda leaves: leaves[0]
    flat = not any(is_nested(child, lists=False) for child in _children(structure))
    if flat and type(structure) is tuple:
        return lambda leaves: leaves
    if flat and type(structure) is dict:
        keys = _sorted_keys(structure)
        if keys == list(structure):
            return lambda leaves: dict(zip(keys, leaves, strict=True))
        order = [keys.index(key) for key in structure]
        names = list(structure)
        return lambda leaves: {name: leaves[n] for name, n in zip(names, order, strict=True)}
    return lambda leaves: pack_sequence_as(structure, leaves, lists=False)


def map_structure(func: Callable[..., Any], *structure: Any, lists: bool = True, **_: Any) -> Any:
    """Call a function with the leaves at each position of one or more structures, and return its results in the same
    structure.

    Raises:
        ValueError, TypeError: the structures are not the same.

    Example:
        >>> import penstock.tf as tf
        >>> tf.nest.map_structure(lambda a, b: a + b, {"x": 1}, {"x": 2})
        {'x': 3}
    """
    if not callable(func):
        raise TypeError(f"func must be callable, got: {func!r}")
    if not structure:
        raise ValueError("Must provide at least one structure")
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types=False, lists=lists)
    leaves = zip(*(flatten(s, lists=lists) for s in structure), strict=True)
    return pack_sequence_as(structure[0], [func(*each) for each in leaves], lists=lists)


def assert_same_structure(
    nest1: Any,
    nest2: Any,
    check_types: bool = True,
    expand_composites: bool = False,
    *,
    lists: bool = True,
) -> None:
    """Check that two structures differ only in their leaves.

    Raises:
        ValueError: different numbers of leaves, or different keys.
        TypeError: different types of structures.

    Example:
        >>> import penstock.tf as tf
        >>> tf.nest.assert_same_structure((1, {"a": 2}), (3, {"a": 4}))
    """
    first, second = is_nested(nest1, lists=lists), is_nested(nest2, lists=lists)
    text = f"The two structures don't have the same nested structure: {_brief(nest1)} and {_brief(nest2)}"
    if first != second:
        raise ValueError(text)
    if not first:
        return
    if isinstance(nest1, Mapping) != isinstance(nest2, Mapping):
        raise TypeError(text)
    if isinstance(nest1, Mapping):
        if set(nest1) != set(nest2):
            raise ValueError(text)
        pairs = [(nest1[key], nest2[key]) for key in nest1]
    else:
        if check_types and type(nest1) is not type(nest2):
            raise TypeError(text)
        if len(nest1) != len(nest2):
            raise ValueError(text)
        pairs = list(zip(nest1, nest2, strict=True))
    for one, other in pairs:
        assert_same_structure(one, other, check_types, lists=lists)


def _brief(value: Any) -> str:
    text = repr(value) if not isinstance(value, np.ndarray) else "<tensor>"
    return text if len(text) < 200 else text[:197] + "..."


__getattr__ = absent_from("tf.nest")
