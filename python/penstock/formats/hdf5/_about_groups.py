"""Facts about the groups of an HDF5 file that are not in their datasets: attributes, and the masks of splits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import SchemaError, UnsupportedError
from penstock.formats.hdf5._file import h5py_or_error
from penstock.formats.numpy.arrays import one_length
from penstock.formats.numpy.dtypes import column, field_of
from penstock.limits import Limits


def attribute_columns(
    groups: Sequence[tuple[str, Any]], names: Sequence[str], limits: Limits
) -> dict[str, pa.Array]:
    """Read attributes of groups, given their paths and handles. An array has the value of each group, null if the group
    lacks the attribute. Texts are a dictionary column.

    Raises:
        SchemaError: no group has the attribute, or its types differ.
        UnsupportedError: Arrow has no such type.
    """
    return {name: _column(groups, name, limits) for name in names}


def _column(groups: Sequence[tuple[str, Any]], name: str, limits: Limits) -> pa.Array:
    parts: list[Any] = []
    found: Any = None
    for path, handle in groups:
        value = _value(handle, name, limits)
        if value is None:
            parts.append(None)
            continue
        found = value.type if found is None else found
        try:
            parts.append(value.cast(found))
        except (pa.ArrowException, ValueError):
            message = (
                f"the attribute of the group {path} is {value.type}, and that of others {found}"
            )
            raise SchemaError(message, field=name) from None
    if found is None:
        known = ", ".join(_names(groups[0][1])) or "none"
        raise SchemaError(f"no group has this attribute; {groups[0][0]} has: {known}", field=name)
    arrays = [pa.nulls(1, found) if part is None else part for part in parts]
    values = pa.concat_arrays(arrays)
    return values.dictionary_encode() if pa.types.is_string(found) else values


def _value(handle: Any, name: str, limits: Limits) -> Any:
    """Read an attribute as an array of one value; None if it is missing or empty."""
    h5py = h5py_or_error()
    raw = name.encode()
    if not h5py.h5a.exists(handle, raw):
        return None
    attribute = h5py.h5a.open(handle, raw)
    try:
        dtype, shape = attribute.dtype, attribute.shape
    except TypeError:
        raise UnsupportedError("Arrow has no type for this attribute", field=name) from None
    if shape is None:
        return None
    limits.check("record_bytes", math.prod(shape) * dtype.itemsize)
    field = field_of(name, dtype, shape)
    values = np.empty((1, *shape), dtype)
    attribute.read(values[0] if shape else values.reshape(()))
    return column(values, field.type)


def _names(handle: Any) -> list[str]:
    h5py = h5py_or_error()
    found: list[bytes] = []
    h5py.h5a.iterate(handle, found.append, order=h5py.h5.ITER_NATIVE)
    return sorted(name.decode("utf-8", "replace") for name in found)


def group_pattern(names: Sequence[str]) -> str | None:
    """The pattern of groups that all have the same datasets, such as "data/*". None if no group has only such groups.

    Example:
        >>> from penstock.formats.hdf5._about_groups import group_pattern
        >>> group_pattern(
        ...     ["data/demo_0/x", "data/demo_0/y", "data/demo_1/x", "data/demo_1/y", "mask/train"]
        ... )
        'data/*'
    """
    layouts: dict[str, dict[str, set[str]]] = {}
    for name in names:
        parts = name.split("/")
        for depth in range(len(parts) - 1):
            parent = "/".join(parts[:depth])
            inside = layouts.setdefault(parent, {}).setdefault(parts[depth], set())
            inside.add("/".join(parts[depth + 1 :]))
    for parent in sorted(layouts, key=lambda parent: (parent.count("/") + bool(parent), parent)):
        groups = list(layouts[parent].values())
        if len(groups) > 1 and all(group == groups[0] for group in groups):
            return f"{parent}/*" if parent else "*"
    return None


def one_table(sizes: dict[str, int], group: Any, chosen: tuple[str, ...] | None) -> int:
    """The number of records of datasets, given their lengths by name.

    Raises:
        SchemaError: their lengths differ. If a whole file is read, and its groups have the same datasets, the error
            names the pattern of these groups.
    """
    is_whole = group is None and chosen is None and len(set(sizes.values())) > 1
    pattern = group_pattern(list(sizes)) if is_whole else None
    if pattern is not None:
        raise SchemaError(
            f"the file has groups with the same datasets, {pattern}, so it is not a single table",
            hint=f"open(..., group={pattern!r}), which reads these groups as one table",
        )
    return one_length("datasets", sizes.items(), ", or names of groups")


def in_split(
    groups: Sequence[Any], split: str, masks: Any, read: Callable[[str], Sequence[Any]]
) -> list[Any]:
    """The groups of a split, which `mask/<split>` lists by their names.

    Args:
        groups: the groups, with `path`.
        masks: the handle of the group `mask`; None if the file has none.
        read: returns the names in the dataset of a split.

    Raises:
        SchemaError: there is no such split, or it lists a group that is not among `groups`.
    """
    h5py = h5py_or_error()
    known: list[bytes] = []
    if masks is not None:
        masks.links.iterate(known.append, order=h5py.h5.ITER_NATIVE)
    if split.encode() not in known:
        listed = ", ".join(sorted(name.decode("utf-8", "replace") for name in known)) or "none"
        raise SchemaError(f"no split {split!r} in the group mask; there are: {listed}")
    names = {name.decode() if isinstance(name, bytes) else name for name in read(split)}
    missing = names - {group.path.rsplit("/", 1)[-1] for group in groups}
    if missing:
        message = f"mask/{split} lists {min(missing)!r}, but no group that is read has this name"
        raise SchemaError(message)
    return [group for group in groups if group.path.rsplit("/", 1)[-1] in names]
