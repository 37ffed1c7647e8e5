"""How many rows of a Parquet row group may be decoded at once, whatever its footer says.

What a column takes when it is decoded can be far more than its pages: a text of a dictionary takes a few bits of the file
for each value that is this text, and all of its bytes in memory; a list of a billion equal values takes a few bytes. So
where that may be much, the headers of the pages are looked at first, and then the dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.types import is_bytes, is_text, storage_of
from penstock.errors import FormatError, LimitError
from penstock.formats.parquet._pages import ColumnChunk, Read, column_chunks, pages
from penstock.limits import Limits, raise_limit

BATCH_BYTES = 64 << 20
"""What a batch may take whose rows have long texts or wide values that the file holds only once."""
_BYTES_TYPE, _FIXED_TYPE = 6, 7
_WIDTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value of each physical type that has one width."""
_LEVEL_BYTES = 5
"""What pyarrow takes for a value inside of another beside the value: its levels and its place."""
_DICTIONARY_PAGE = 2

ReadDictionaries = Callable[[Sequence[str], int], Iterator[Any]]
"""Batches of so many rows, in which the columns of these paths are dictionaries."""


class Weight(NamedTuple):
    """What one column takes when it is decoded."""

    path: str
    num_values: int
    plain_bytes: int
    """Of pages of values."""
    level_bytes: int
    """What pyarrow takes for values inside of others beside their pages."""
    largest_page: int
    longest: int
    """No value of its dictionary is longer."""
    is_bytes: bool


def varies(type_: Any) -> bool:
    """Whether values of a type take any number of bytes."""
    kind = storage_of(type_)
    if pa.types.is_fixed_size_list(kind):
        return varies(kind.value_type)
    if pa.types.is_struct(kind):
        return any(varies(field.type) for field in kind)
    return is_bytes(kind) or is_text(kind) or pa.types.is_nested(kind)


class Rows(NamedTuple):
    """What the rows of a row group take."""

    step: int
    """So many may be decoded at once."""
    row_bytes: int
    """One of them takes as much as this, where that is known to be much."""

    def check(self, limits: Limits) -> None:
        """Raise LimitError where a row is more than a batch may be."""
        if self.row_bytes > limits.batch_bytes:
            message = f"a row takes {self.row_bytes} bytes, beyond the limit batch_bytes={limits.batch_bytes}"
            hint = f"{raise_limit('batch_bytes', self.row_bytes)}, or other columns"
            raise LimitError(message, hint=hint)


def rows_of(
    found: Sequence[Weight],
    rows: int,
    limits: Limits,
    dictionaries: ReadDictionaries,
    *,
    told_bytes: int,
    has_few_bytes: bool,
) -> Rows:
    """What some rows with columns of these weights take, of which the footer tells `told_bytes`. Dictionaries are read where the file has few bytes for its
    values only: that takes as long as reading many values."""
    pages_bytes = sum(one.plain_bytes for one in found)
    levels = pages_bytes + sum(one.level_bytes for one in found)
    if levels // 4 > rows * limits.batch_bytes:
        return Rows(1, levels // rows)
    longest = [one.longest for one in found]
    if has_few_bytes and any(one.longest * one.num_values > BATCH_BYTES for one in found):
        paths = [one.path for one in found if one.is_bytes]
        texts = _longest_texts(dictionaries(paths, 1))
        if len(texts) == len(found):
            longest = [
                text if one.is_bytes and text else one.longest
                for one, text in zip(found, texts, strict=True)
            ]
    else:
        longest = [0] * len(found)
    texts_bytes = sum(one.num_values * text for one, text in zip(found, longest, strict=True))
    # Pages may take a few times what a batch does: row groups are cut by the size that is told.
    is_told = pages_bytes <= 2 * told_bytes
    num_bytes = max(texts_bytes + (levels // 4 if is_told else 2 * levels), 1)
    step = rows if num_bytes <= BATCH_BYTES else max(1, rows * BATCH_BYTES // num_bytes)
    if texts_bytes <= limits.batch_bytes or all(one.num_values <= rows for one in found):
        return Rows(step, 0)
    heaviest = _heaviest(dictionaries([one.path for one in found if one.is_bytes], 1 << 16))
    return Rows(min(step, max(1, BATCH_BYTES // max(heaviest, 1))), heaviest)


def weights(read: Read, footer: bytes, group: int, names: Collection[str]) -> list[Weight]:
    """What some columns of a row group take, those inside of a column in their order; nothing where the footer makes no
    sense."""
    try:
        chunks = list(column_chunks(footer, group))
    except (IndexError, FormatError):
        return []
    return [_weight(read, chunk) for chunk in chunks if chunk.name in names]


def _weight(read: Read, chunk: ColumnChunk) -> Weight:
    is_text = chunk.type == _BYTES_TYPE
    num_values = plain_bytes = level_bytes = longest = largest = 0
    for page in pages(read, chunk):
        largest = max(largest, page.plain_bytes)
        if page.kind == _DICTIONARY_PAGE:
            # Each text has its length before it, so that one has at most what is left by the others.
            texts = page.plain_bytes - 4 * max(page.num_values, 1)
            fixed = page.plain_bytes // max(page.num_values, 1)
            longest = texts if is_text else fixed * (chunk.type == _FIXED_TYPE)
        else:
            num_values += page.num_values
            plain_bytes += page.plain_bytes
    if len(chunk.path) > 1:
        level_bytes = num_values * (_LEVEL_BYTES + _WIDTHS.get(chunk.type, 4))
    path = ".".join(chunk.path)
    return Weight(path, num_values, plain_bytes, level_bytes, largest, max(longest, 0), is_text)


def _longest_texts(batches: Iterator[Any]) -> list[int]:
    """The length of the longest text of the dictionary of each column; 0 of what has no dictionary."""
    try:
        batch = next(batches, None)
    except (pa.ArrowException, OSError, ValueError):
        return []  # it is told where the values are read
    return [] if batch is None else [n for column in batch.columns for n in _longest(column)]


def _longest(array: Any) -> list[int]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _longest(array.storage)
    if pa.types.is_dictionary(kind):
        return [int(_text_bytes(array.dictionary).max(initial=0))]
    if pa.types.is_struct(kind):
        return [n for field in range(kind.num_fields) for n in _longest(array.field(field))]
    if pa.types.is_map(kind):
        return [*_longest(array.keys), *_longest(array.items)]
    return _longest(array.values) if pa.types.is_nested(kind) else [0]


def _text_bytes(dictionary: Any) -> np.ndarray:
    """The length of each text. Offsets of 32 bits: no value of them is looked at, so they need not be sound."""
    if not len(dictionary):
        return np.zeros(0, np.int64)
    ends = np.frombuffer(dictionary.buffers()[1], np.int32)[: len(dictionary) + 1]
    return np.diff(ends).astype(np.int64)


def _heaviest(batches: Iterator[Any]) -> int:
    """Bytes of the texts of the row that has most of them."""
    most = 0
    try:
        for batch in batches:
            sizes = sum(
                (_sizes(column) for column in batch.columns), start=np.zeros(len(batch), np.int64)
            )
            most = max(most, int(sizes.max(initial=0)))
    except (pa.ArrowException, OSError, ValueError):
        pass  # it is told where the values are read
    return most


def _sizes(array: Any) -> np.ndarray:
    """Bytes of the texts of each value."""
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
