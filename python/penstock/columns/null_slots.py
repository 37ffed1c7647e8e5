"""Makes the contents of null slots in view arrays harmless.

Arrow leaves the contents of a null slot undefined, and pyarrow's `validate(full=True)` does not check them. But
pyarrow's casts read the views in null slots, and a negative length there crashes the process. All arrays from outside
(Arrow files, C streams, arrays to be written) therefore pass through this module first. Other types need no cleaning:
for lists and other strings, pyarrow checks the offsets of every slot, and the remaining types do not refer to other
memory.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

_VIEW_BYTES = 16


def without_garbage(batch: Any) -> Any:
    """Return the batch with empty views in its null slots. If they are empty already, return the same batch.

    Example:
        >>> import pyarrow as pa
        >>> from penstock.columns.null_slots import without_garbage
        >>> batch = pa.record_batch([pa.array(["a", None], pa.string_view())], ["x"])
        >>> without_garbage(batch) is batch
        True
    """
    columns: dict[int, Any] = {}
    for place, field in enumerate(batch.schema):
        if has_views(field.type):
            column = batch.column(place)
            safe = cleaned(column)
            if safe is not column:
                columns[place] = safe
    if not columns:
        return batch
    arrays = [columns.get(place, column) for place, column in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


@lru_cache(1024)
def has_views(type_: Any) -> bool:
    """Whether values of a type are or contain views of bytes or texts."""
    kind = pa.types
    if isinstance(type_, pa.BaseExtensionType):
        return has_views(type_.storage_type)
    if kind.is_dictionary(type_):
        return has_views(type_.value_type)
    if kind.is_run_end_encoded(type_):
        return has_views(type_.value_type)
    if kind.is_binary_view(type_) or kind.is_string_view(type_):
        return True
    return any(has_views(type_.field(place).type) for place in range(type_.num_fields))


def cleaned(array: Any) -> Any:
    """Like `without_garbage`, for an array."""
    type_, kind = array.type, pa.types
    if not has_views(type_):
        return array
    if kind.is_binary_view(type_) or kind.is_string_view(type_):
        return _cleaned_views(array)
    if isinstance(type_, pa.BaseExtensionType):
        stored = cleaned(array.storage)
        return array if stored is array.storage else pa.ExtensionArray.from_storage(type_, stored)
    inside = _inside(array)
    safe = [cleaned(part) for part in inside]
    if all(new is old for new, old in zip(safe, inside, strict=True)):
        return array
    return _rebuilt(array, safe)


def _cleaned_views(array: Any) -> Any:
    if not array.null_count:
        return array
    valid, views, *data = array.buffers()
    start, end = array.offset, array.offset + len(array)
    slots = np.frombuffer(views, np.uint64, 2 * end).reshape(-1, 2)
    is_null = array.is_null().to_numpy(zero_copy_only=False)
    if not slots[start:][is_null].any():
        return array
    slots = slots.copy()
    slots[start:][is_null] = 0
    buffers = [valid, pa.py_buffer(slots), *data]
    return pa.Array.from_buffers(array.type, len(array), buffers, array.null_count, start)


def _inside(array: Any) -> list[Any]:
    type_, kind = array.type, pa.types
    if kind.is_dictionary(type_):
        return [array.dictionary]
    if kind.is_map(type_):
        return [array.keys, array.items]
    if kind.is_struct(type_) or kind.is_union(type_):
        return [array.field(place) for place in range(type_.num_fields)]
    return [array.values]  # lists and run-end encoded arrays


def _rebuilt(array: Any, inside: list[Any]) -> Any:
    type_, kind = array.type, pa.types
    count, start = len(array), array.offset
    if kind.is_dictionary(type_):
        return pa.DictionaryArray.from_arrays(
            array.indices, inside[0], ordered=type_.ordered, safe=False
        )
    if kind.is_struct(type_):
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(inside, fields=list(type_), mask=mask)
    if kind.is_union(type_):
        names = [type_.field(place).name for place in range(type_.num_fields)]
        if type_.mode == "dense":
            return pa.UnionArray.from_dense(
                array.type_codes, array.offsets, inside, names, type_.type_codes
            )
        return pa.UnionArray.from_sparse(array.type_codes, inside, names, type_.type_codes)
    if kind.is_run_end_encoded(type_):
        whole = pa.RunEndEncodedArray.from_arrays(array.run_ends, inside[0], type_)
        return whole.slice(start, count)
    if kind.is_map(type_):
        entries = [type_.key_field, type_.item_field]
        inside = [pa.StructArray.from_arrays(inside, fields=entries)]
    is_fixed = kind.is_fixed_size_list(type_)
    is_view = kind.is_list_view(type_) or kind.is_large_list_view(type_)
    own = array.buffers()[: 1 if is_fixed else 3 if is_view else 2]
    return pa.Array.from_buffers(type_, count, own, array.null_count, start, inside)
