"""Columns that consist of several arrays of an npz file. The names of the arrays define them.

| arrays | column |
|---|---|
| `x` | unchanged |
| `x#offsets` (int64, one more than records), `x#bytes` or `x#utf8` (uint8) | binary or string: value n is bytes offsets[n] to offsets[n + 1] |
| `x#offsets`, `x#values` or the arrays of a column of this name | lists: list n is values offsets[n] to offsets[n + 1] |
| `x#codes` (integers), and a column `x#names` of text | dictionary: class labels with names |
| `x#valid` (bool) with any of these | nulls where it is False |

NumPy alone can read and write such files. If arrays have such names, but do not form a column, each is its own column.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import FormatError
from penstock.formats.numpy.arrays import ArrayColumn, Cut, StoredArray, StoredColumn, one_length
from penstock.formats.numpy.dtypes import bitmap
from penstock.limits import Limits

ENDINGS = ("#offsets", "#bytes", "#utf8", "#values", "#codes", "#names", "#valid")
_MOST_NAMES = 1 << 20


def table_of(arrays: dict[str, StoredArray], limits: Limits) -> tuple[list[StoredColumn], int]:
    """Return the columns that arrays form, and the number of records. Raise SchemaError if they differ in length."""
    columns: list[StoredColumn] = []
    done: set[str] = set()
    names = sorted(arrays)
    for name, array in arrays.items():
        if name in done:
            continue
        root = _root(name)
        # In sorted order, all names from "root#" to "root$" begin with "root#", because "$" follows
        # "#".
        first, behind = (bisect_left(names, root + mark) for mark in "#$")
        family = {root} & arrays.keys() | set(names[first:behind])
        used: set[str] = set()
        made = None if family == {name} else _Builder(arrays, used, limits).column(root, 0)
        if made is not None and used == family:
            columns.append(made)
            done |= family
        else:
            columns.append(ArrayColumn(name, array))
    sizes = ((column.field.name, column.num_records) for column in columns)
    return columns, one_length("arrays", sizes)


def _root(name: str) -> str:
    """Return a name without the endings of parts of columns."""
    while (cut := name.rfind("#")) > 0 and name[cut:] in ENDINGS:
        name = name[:cut]
    return name


class _Builder:
    """Makes a column from arrays, and adds their names to `used`."""

    def __init__(self, arrays: dict[str, StoredArray], used: set[str], limits: Limits) -> None:
        self._arrays = arrays
        self._used = used
        self._limits = limits

    def column(self, name: str, level: int) -> StoredColumn | None:
        """Return the column called `name`, or None if its arrays do not form one."""
        if level > self._limits.nesting:
            return None
        found = self._without_nulls(name, level)
        valid = self._flat(f"{name}#valid", "?")
        if found is None or valid is None or valid.num_records != found.num_records:
            return found
        self._used.add(f"{name}#valid")
        return _Nullable(found, valid)

    def _without_nulls(self, name: str, level: int) -> StoredColumn | None:
        offsets = self._flat(f"{name}#offsets", "<i8")
        if offsets is not None and offsets.num_records:
            for ending, type_ in (("#utf8", pa.string()), ("#bytes", pa.binary())):
                data = self._flat(name + ending, "u1")
                if data is not None:
                    self._used |= {f"{name}#offsets", name + ending}
                    return _Bytes(name, offsets, data, type_, self._limits)
            values = self.column(f"{name}#values", level + 1)
            if values is not None:
                self._used.add(f"{name}#offsets")
                return _Lists(name, offsets, values, self._limits)
        codes = self._arrays.get(f"{name}#codes")
        if codes is not None and len(codes.shape) == 1 and codes.dtype.kind in "iu":
            names = self.column(f"{name}#names", level + 1)
            if names is not None and names.num_records <= _MOST_NAMES:
                self._used.add(f"{name}#codes")
                return _Labels(name, codes, names)
        if name not in self._arrays:
            return None
        self._used.add(name)
        return ArrayColumn(name, self._arrays[name])

    def _flat(self, name: str, dtype: str) -> StoredArray | None:
        array = self._arrays.get(name)
        return array if array and len(array.shape) == 1 and array.dtype == np.dtype(dtype) else None


class _Ranges(StoredColumn):
    """Lists or bytes, from offsets that are checked against the number of values."""

    def __init__(self, name: str, offsets: StoredArray, inner: int, size: float) -> None:
        self._offsets = offsets
        self._name = name
        self._inner = inner
        self.num_records = offsets.num_records - 1
        self.record_bytes = 8 + inner * size / max(self.num_records, 1)
        self.chunk_records = max(1, min(int((2 << 20) / self.record_bytes), 1 << 20))

    def ranges(self, cut: Cut) -> tuple[Cut, np.ndarray]:
        """Return where the values of the records are, and their offsets (int64), which start at 0."""
        runs, counts = cut.runs
        fences = Cut.of_runs(runs, counts + 1, is_chunk=cut.is_chunk)
        fences.shared = 1
        around = fences.values(self._offsets).astype(np.int64, copy=False)
        ends = np.cumsum(counts + 1)
        firsts = ends - (counts + 1)
        low, high = around[firsts], around[ends - 1]
        keep = np.ones(len(around), bool)
        keep[ends - 1] = False
        lengths = np.diff(around, append=0)[keep]
        if (lengths < 0).any() or (low < 0).any() or (high > self._inner).any():
            wrong = int(np.flatnonzero(lengths < 0)[0]) if (lengths < 0).any() else 0
            message = "the offsets decrease, or point beyond the values"
            raise FormatError(message, record=wrong, field=self._name)
        offsets = np.zeros(cut.total + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        some = high > low
        inner = Cut.of_runs(low[some], (high - low)[some], is_chunk=cut.is_chunk)
        return inner, offsets


class _Bytes(_Ranges):
    def __init__(
        self, name: str, offsets: StoredArray, data: StoredArray, type_: Any, limits: Limits
    ) -> None:
        super().__init__(name, offsets, data.num_records, 1)
        self._data = data
        self._limits = limits
        self.field: Any = pa.field(name, type_)

    def read(self, cut: Cut) -> Any:
        inner, offsets = self.ranges(cut)
        self._limits.check_batch(inner.total)
        data = np.ascontiguousarray(inner.values(self._data))
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        array = pa.Array.from_buffers(self.field.type, cut.total, buffers)
        if self.field.type == pa.string():
            try:
                array.validate(full=True)
            except pa.ArrowInvalid as error:
                raise FormatError(f"a value is not UTF-8: {error}", field=self._name) from None
        return array


class _Lists(_Ranges):
    def __init__(
        self, name: str, offsets: StoredArray, values: StoredColumn, limits: Limits
    ) -> None:
        super().__init__(name, offsets, values.num_records, values.record_bytes)
        self._values = values
        self._limits = limits
        item = pa.field("item", values.field.type, metadata=values.field.metadata)
        self.field: Any = pa.field(name, pa.list_(item))

    def read(self, cut: Cut) -> Any:
        inner, offsets = self.ranges(cut)
        self._limits.check_batch(int(inner.total * self._values.record_bytes))
        try:
            values = self._values.read(inner)
        except FormatError as error:
            if error.record is not None:
                error.record = int(np.searchsorted(offsets, error.record, side="right")) - 1
            raise
        buffers = [None, pa.py_buffer(offsets.astype(np.int32))]
        return pa.Array.from_buffers(self.field.type, cut.total, buffers, children=[values])


class _Labels(StoredColumn):
    def __init__(self, name: str, codes: StoredArray, names: StoredColumn) -> None:
        self._codes = ArrayColumn(name, codes)
        self._names = names
        self.num_records = codes.num_records
        self.record_bytes = self._codes.record_bytes
        self.chunk_records = self._codes.chunk_records
        self.field: Any = pa.field(name, pa.dictionary(self._codes.field.type, names.field.type))
        self._read_names: Any = None

    def read(self, cut: Cut) -> Any:
        if self._read_names is None:
            try:
                self._read_names = self._names.read(Cut.of_run(0, self._names.num_records))
            except FormatError as error:
                error.record = None
                raise
        codes = cut.values(self._codes.array)
        wrong = (codes < 0) | (codes >= len(self._read_names))
        if wrong.any():
            record = int(np.flatnonzero(wrong)[0])
            raise FormatError("the label has no name", record=record, found=int(codes[record]))
        return pa.DictionaryArray.from_arrays(self._codes.read(cut), self._read_names)


class _Nullable(StoredColumn):
    def __init__(self, column: StoredColumn, valid: StoredArray) -> None:
        self._column = column
        self._valid = valid
        self.field: Any = column.field
        self.num_records = column.num_records
        self.record_bytes = column.record_bytes + 1
        self.chunk_records = column.chunk_records

    def read(self, cut: Cut) -> Any:
        values = self._column.read(cut)
        valid = cut.values(self._valid).view(np.uint8) != 0
        return values if valid.all() else with_nulls(values, valid)


def with_nulls(values: Any, valid: np.ndarray) -> Any:
    """Return the values with nulls where `valid` is False. The values must begin at the start of their buffers."""
    if isinstance(values.type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(values.type, with_nulls(values.storage, valid))
    if values.null_count:
        valid = valid & ~np.array(values.is_null().to_pylist(), bool)
    if pa.types.is_dictionary(values.type):
        codes = with_nulls(values.indices, valid)
        return pa.DictionaryArray.from_arrays(codes, values.dictionary)
    buffers = [bitmap(valid), *values.buffers()[1 : values.type.num_buffers]]
    children: Any = None
    if pa.types.is_struct(values.type):
        children = [values.field(n) for n in range(values.type.num_fields)]
    elif pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type):
        children = [values.values]
    return pa.Array.from_buffers(values.type, len(values), buffers, children=children)
