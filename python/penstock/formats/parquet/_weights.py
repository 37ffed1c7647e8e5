"""Computes how many rows of a Parquet row group may be decoded together, without trusting the footer.

A decoded column can take far more memory than its pages: a value from a dictionary takes a few bits in the file, but
its full length in memory, and a list of a billion equal values takes a few bytes in the file. So if the decoded size
may be large, the headers of the pages are read first, and then the dictionaries. pyarrow decompresses each page as a
whole and copies its values, so no page may be larger than the limit for one record.

Specification: parquet.thrift. PageHeader field 1 is the kind of the page, 2 its decompressed size, 3 its size in the
file. Fields 5, 7 and 8 each belong to one kind of page; their field 1 is the number of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_bytes, is_text, storage_of
from penstock.errors import FormatError, LimitError
from penstock.formats.parquet._footer import ColumnChunk
from penstock.formats.parquet._thrift import I32, STRUCT, Thrift
from penstock.limits import Limits, raise_limit

BATCH_BYTES = 64 << 20
"""The largest size of a batch with long texts or wide values that the file stores only once."""
_KIND, _PLAIN_SIZE, _SIZE, _NUM_VALUES = (1, I32), (2, I32), (3, I32), (1, I32)
_DICTIONARY_PAGE = 2
_OF_KIND = {0: (5, STRUCT), _DICTIONARY_PAGE: (7, STRUCT), 3: (8, STRUCT)}
_HEADER_BYTES = (512, 1 << 16, 1 << 24)
"""How many bytes to read for a header. If a header is longer, the next number is tried: most headers are short, but
statistics may be long."""
_BYTES_TYPE, _FIXED_TYPE = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""The bytes of a value, by physical type of fixed width."""
_LEVEL_BYTES = 5
"""The bytes that pyarrow takes for the levels and the position of a value in a list or struct."""

Read = Callable[[int, int], bytes]
ReadDictionaries = Callable[[Sequence[str], int], Iterator[Any]]
"""Yields batches of the given number of rows, with the columns of these paths as dictionaries."""


class Leaf(NamedTuple):
    """A leaf column. A nested column of the table has several."""

    path: str
    is_nested: bool


class Page(NamedTuple):
    """Facts from the header of a page."""

    start: int
    kind: int
    plain_bytes: int
    num_values: int


class Weight(NamedTuple):
    """The memory that one column takes when it is decoded."""

    path: str
    num_values: int
    plain_bytes: int
    """Bytes of the decompressed pages of values."""
    level_bytes: int
    """Bytes that pyarrow takes for nested values, in addition to their pages."""
    longest: int
    """An upper bound for the length of the values in the column's dictionary."""
    is_bytes: bool


class Rows(NamedTuple):
    """The size of a row group's rows."""

    step: int
    """How many rows may be decoded together."""
    row_bytes: int
    """The bytes that one row may take if it may be large; else 0."""

    def check(self, limits: Limits) -> None:
        """Raise LimitError if a row exceeds the limit for a batch."""
        if self.row_bytes > limits.batch_bytes:
            message = f"a row takes {self.row_bytes} bytes, beyond the limit batch_bytes={limits.batch_bytes}"
            hint = f"{raise_limit('batch_bytes', self.row_bytes)}, or read other columns"
            raise LimitError(message, hint=hint)


def varies(type_: Any) -> bool:
    """Whether values of a type vary in size."""
    kind = storage_of(type_)
    if pa.types.is_fixed_size_list(kind):
        return varies(kind.value_type)
    if pa.types.is_struct(kind):
        return any(varies(field.type) for field in kind)
    return is_bytes(kind) or is_text(kind) or pa.types.is_nested(kind)


# -- pages ------------------------------------------------------------------------------------------


def weight_of(read: Read, leaf: Leaf, column: ColumnChunk, limits: Limits) -> Weight:
    """Return the memory that a column of a row group takes, from the headers of its pages. Raise LimitError if a page
    exceeds the limit for one record."""
    is_text = column.type == _BYTES_TYPE
    num_values = plain_bytes = level_bytes = longest = 0
    for page in _pages(read, column):
        if page.plain_bytes > limits.record_bytes:
            message = (
                f"a page takes {page.plain_bytes} bytes after decompression, beyond the limit "
                f"record_bytes={limits.record_bytes}"
            )
            hint = f"{raise_limit('record_bytes', page.plain_bytes)}, or read other columns"
            field = leaf.path.split(".")[0]
            raise LimitError(message, field=field, byte=page.start, hint=hint)
        if page.kind == _DICTIONARY_PAGE:
            # Each text has a length of 4 bytes before it. One text may take all remaining bytes.
            texts = page.plain_bytes - 4 * max(page.num_values, 1)
            fixed = page.plain_bytes // max(page.num_values, 1)
            longest = max(texts if is_text else fixed * (column.type == _FIXED_TYPE), 0)
        else:
            num_values += page.num_values
            plain_bytes += page.plain_bytes
    if leaf.is_nested:
        level_bytes = num_values * (_LEVEL_BYTES + _WIDTHS.get(column.type, 4))
    return Weight(leaf.path, num_values, plain_bytes, level_bytes, longest, is_text)


def _pages(read: Read, column: ColumnChunk) -> Iterator[Page]:
    """Yield the pages of a column while their headers can be read. pyarrow raises an error for the rest."""
    at = column.start
    while at < column.end:
        found = _header(read, at)
        if found is None:
            return
        page, length, num_bytes = found
        yield page
        if num_bytes < 0:
            return
        at += length + num_bytes


def _header(read: Read, at: int) -> tuple[Page, int, int] | None:
    """Return the header of a page, the header's length, and the size of the page in the file."""
    for most in _HEADER_BYTES:
        thrift = Thrift(read(at, most))
        try:
            facts = thrift.numbers()
        except IndexError:
            if len(thrift.data) < most:
                return None
            continue
        except FormatError:
            return None
        kind = facts.get(_KIND, 0)
        values = facts.get(_OF_KIND.get(kind, (0, 0)), {})
        num_values = max(values.get(_NUM_VALUES, 0), 0)
        page = Page(at, kind, facts.get(_PLAIN_SIZE, 0), num_values)
        return page, thrift.at, facts.get(_SIZE, -1)
    return None


# -- rows -------------------------------------------------------------------------------------------


# Complexity: each step decides whether the next, more expensive step is needed.
def rows_of(
    found: Sequence[Weight],
    rows: int,
    limits: Limits,
    dictionaries: ReadDictionaries,
    *,
    footer_bytes: int,
    has_few_bytes: bool,
) -> Rows:
    """Return the size of rows whose columns have these weights.

    Args:
        found: a weight for each column.
        rows: the number of rows.
        limits: the limits, which bound the size of a row.
        dictionaries: reads columns as dictionaries.
        footer_bytes: the size of the row group that the footer states.
        has_few_bytes: whether the file has few bytes for its values. Only then are dictionaries read, because that
            takes as long as reading many values.
    """
    pages_bytes = sum(one.plain_bytes for one in found)
    values_bytes = pages_bytes + sum(one.level_bytes for one in found)
    if values_bytes // 4 > rows * limits.batch_bytes:
        return Rows(1, values_bytes // rows)
    texts_bytes = 0
    if has_few_bytes and any(one.longest * one.num_values > BATCH_BYTES for one in found):
        texts_bytes = _texts_bytes(found, dictionaries)
    # If the size in the footer is plausible, `_plan` in format.py has already split the row group by
    # that size. Then row groups of up to four times BATCH_BYTES (without long dictionary values) are
    # decoded without a further split.
    is_known = pages_bytes <= 2 * footer_bytes
    num_bytes = max(texts_bytes + (values_bytes // 4 if is_known else 2 * values_bytes), 1)
    step = rows if num_bytes <= BATCH_BYTES else max(1, rows * BATCH_BYTES // num_bytes)
    if texts_bytes <= limits.batch_bytes or all(one.num_values <= rows for one in found):
        return Rows(step, 0)
    paths = [one.path for one in found if one.is_bytes]
    heaviest = _heaviest(dictionaries(paths, 1 << 16))
    return Rows(min(step, max(1, BATCH_BYTES // max(heaviest, 1))), heaviest)


def _texts_bytes(found: Sequence[Weight], dictionaries: ReadDictionaries) -> int:
    """Return the bytes of all values if each is as long as the longest in its column. That length comes from the
    dictionary, or from the dictionary's page if the dictionary cannot be read."""
    try:
        batch = next(dictionaries([one.path for one in found if one.is_bytes], 1), None)
        leaves = [] if batch is None else [leaf for c in batch.columns for leaf in _leaves(c)]
    except (pa.ArrowException, OSError, ValueError):
        leaves = []  # reading the values raises the same error
    if len(leaves) != len(found):
        return sum(one.num_values * one.longest for one in found)
    return sum(
        one.num_values * _longest_text(one, leaf) for one, leaf in zip(found, leaves, strict=True)
    )


def _longest_text(weight: Weight, leaf: Any) -> int:
    if weight.is_bytes and pa.types.is_dictionary(leaf.type):
        return int(_text_bytes(leaf.dictionary).max(initial=0)) or weight.longest
    return weight.longest


def _leaves(array: Any) -> Iterator[Any]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _leaves(array.storage)
    elif pa.types.is_struct(kind):
        for field in range(kind.num_fields):
            yield from _leaves(array.field(field))
    elif pa.types.is_map(kind):
        yield from (*_leaves(array.keys), *_leaves(array.items))
    elif pa.types.is_nested(kind):
        yield from _leaves(array.values)
    else:
        yield array


def _text_bytes(dictionary: Any) -> np.ndarray:
    """Return the length of each text, from the 32-bit offsets alone, because the texts may be invalid."""
    if not len(dictionary):
        return np.zeros(0, np.int64)
    ends = np.frombuffer(dictionary.buffers()[1], np.int32)[: len(dictionary) + 1]
    return np.diff(ends).astype(np.int64)


def _heaviest(batches: Iterator[Any]) -> int:
    """Return the largest number of bytes in the texts of a row."""
    most = 0
    try:
        for batch in batches:
            sizes = sum(map(_sizes, batch.columns), start=np.zeros(len(batch), np.int64))
            most = max(most, int(sizes.max(initial=0)))
    except (pa.ArrowException, OSError, ValueError):
        pass  # reading the values raises the same error
    return most


def _sizes(array: Any) -> np.ndarray:
    """Return the bytes of text in each value."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _sizes(array.storage)
    if pa.types.is_dictionary(kind):
        lengths = np.append(_text_bytes(array.dictionary), 0)
        places = array.indices.fill_null(len(lengths) - 1).to_numpy()
        return lengths[places]
    if pa.types.is_struct(kind):
        parts = [_sizes(array.field(field)) for field in range(kind.num_fields)]
        return sum(parts, start=np.zeros(len(array), np.int64))
    if pa.types.is_map(kind):
        return _of_lists(array, _sizes(array.keys) + _sizes(array.items))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _of_lists(array, _sizes(array.values))
    if pa.types.is_fixed_size_list(kind):
        whole = _sizes(array.values)[array.offset * kind.list_size :][: len(array) * kind.list_size]
        return whole.reshape(len(array), kind.list_size).sum(axis=1)
    return np.zeros(len(array), np.int64)


def _of_lists(array: Any, values: np.ndarray) -> np.ndarray:
    ends = np.concatenate([[0], np.cumsum(values)])
    return np.diff(ends[array.offsets.to_numpy()])
