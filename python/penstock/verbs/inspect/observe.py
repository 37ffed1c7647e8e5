"""The summary of one column of one batch, for `stats`: nulls, lengths, ranges, text and images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import describe
from penstock.columns import nearest
from penstock.columns.numbers import as_numpy
from penstock.columns.types import innermost, is_bytes, is_bytes_view, is_list, is_text
from penstock.verbs.inspect.tally import DISTINCT_BYTES, Distinct, Exact, Histogram, Range, Spread

_IMAGE_SAMPLE = 16
"""If this many first values of a batch contain no image, the other values are not searched for images."""
_TEXT_SAMPLE = 64


@dataclass(frozen=True, slots=True)
class ImageSizes:
    """The encoded images of one kind ("JPEG", "PNG", "GIF", "WebP") in a field, with sizes in pixels."""

    kind: str
    width: Spread
    height: Spread


@dataclass(slots=True)
class Seen:
    """The summary of one field so far."""

    num_entries: int = 0
    num_null: int = 0
    lengths: Range = field(default_factory=Range)
    sizes: Range = field(default_factory=Range)
    values: Range = field(default_factory=Range)
    num_nan: int = 0
    num_infinite: int = 0
    num_not_text: int = 0
    distinct: Distinct = field(default_factory=Distinct)
    images: dict[str, tuple[Range, Range]] = field(default_factory=dict)

    def merge(self, other: Seen) -> None:
        for name in ("num_entries", "num_null", "num_nan", "num_infinite", "num_not_text"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("lengths", "sizes", "values", "distinct"):
            getattr(self, name).merge(getattr(other, name))
        for kind, (width, height) in other.images.items():
            mine = self.images.setdefault(kind, (Range(), Range()))
            mine[0].merge(width)
            mine[1].merge(height)

    def is_text(self, type_: pa.DataType) -> bool:
        if not self.sizes.count:
            return False
        inner = innermost(type_)
        return pa.types.is_string(inner) or pa.types.is_large_string(inner) or not self.num_not_text

    def histogram(self) -> Histogram | None:
        """Return the histogram of the values if they are numbers, else of their sizes, else of the list lengths."""
        return (
            self.values.bins.histogram("values")
            or self.sizes.bins.histogram("sizes")
            or self.lengths.bins.histogram("lengths")
        )

    def image_sizes(self) -> tuple[ImageSizes, ...]:
        found: list[ImageSizes] = []
        for kind in sorted(self.images):
            width, height = (side.spread() for side in self.images[kind])
            assert width is not None, "a kind is noted with its first image"
            assert height is not None, "as above"
            found.append(ImageSizes(kind, width, height))
        return tuple(found)


Observation = dict[str, tuple[pa.DataType, Seen]]
"""The summaries of a column and, for structs, of its children, by name."""


class FieldObserver:
    """Summarises the batches of one field (`look`, in any thread) and merges the summaries (`add`)."""

    def __init__(self, name: str, type_: pa.DataType) -> None:
        self._name = name
        self._type = type_
        self.seen: Observation = {name: (type_, Seen())}
        self._countless: frozenset[str] = frozenset()

    def anew(self) -> FieldObserver:
        """An observer of the same field that has seen nothing."""
        return FieldObserver(self._name, self._type)

    def look(self, column: pa.Array) -> Observation:
        """Summarise one batch. This does not change the observer."""
        found: Observation = {}
        _observe(self._name, column, found, self._countless)
        return found

    def add(self, part: Observation) -> None:
        for name, (type_, seen) in part.items():
            total = self.seen.setdefault(name, (type_, Seen()))[1]
            total.merge(seen)
            if total.distinct.counts is None or total.distinct.is_over:
                # Later batches need no counts, because the result cannot change.
                self._countless |= {name}

    def results(self) -> Iterator[tuple[str, pa.DataType, Seen]]:
        for name, (type_, seen) in self.seen.items():
            yield name, type_, seen


def _observe(name: str, array: pa.Array, found: Observation, countless: frozenset[str]) -> None:
    seen = Seen(len(array), array.null_count)
    found[name] = (array.type, seen)
    array, lengths = _flat(array)
    if lengths is not None:
        seen.lengths.add(lengths)
    type_ = array.type
    types = pa.types
    if types.is_struct(type_):
        seen.distinct.forgo()
        for child, values in zip(type_, array.flatten(), strict=True):
            _observe(f"{name}.{child.name}", values, found, countless)
    elif _is_bytes(type_):
        _observe_bytes(array, seen, name in countless)
    elif types.is_decimal(type_):
        seen.distinct.forgo()
        _observe_decimals(array, seen)
    elif types.is_floating(type_):
        seen.distinct.forgo()
        _observe_floats(array, seen)
    elif types.is_integer(type_) or types.is_boolean(type_) or types.is_temporal(type_):
        _observe_integers(array, seen, name in countless)
    elif not types.is_null(type_):
        seen.distinct.forgo()  # for a map or union, only nulls and lengths are reported


def _flat(array: pa.Array) -> tuple[pa.Array, np.ndarray | None]:
    """Return the innermost values of a column, and their number in each outermost list."""
    lengths: np.ndarray | None = None
    while True:
        type_ = array.type
        if isinstance(type_, pa.BaseExtensionType):
            array = array.storage
        elif pa.types.is_dictionary(type_):
            array = array.dictionary_decode()
        elif is_list(type_):
            if lengths is None:
                lengths = _lengths(array)
            array = array.flatten()
        else:
            return array, lengths


def _lengths(array: pa.Array) -> np.ndarray:
    import pyarrow.compute as pc

    if pa.types.is_fixed_size_list(array.type):
        return np.full(len(array) - array.null_count, array.type.list_size, np.int64)
    return _numpy(pc.list_value_length(array).drop_null().cast(pa.int64()))


def _numpy(array: pa.Array) -> np.ndarray:
    is_plain = array.type in (pa.int64(), pa.float64()) and not array.null_count
    return as_numpy(array) if is_plain else array.to_numpy(zero_copy_only=False)


def _observe_floats(array: pa.Array, seen: Seen) -> None:
    numbers = _numpy(array.drop_null().cast(pa.float64()))
    finite = np.isfinite(numbers)
    if not finite.all():
        seen.num_nan = int(np.isnan(numbers).sum())
        seen.num_infinite = int(len(numbers) - finite.sum()) - seen.num_nan
        numbers = numbers[finite]
    seen.values.add(numbers)


def _observe_decimals(array: pa.Array, seen: Seen) -> None:
    """The range and the sum are exact, and the histogram is that of the nearest floats."""
    values = array.drop_null()
    if len(values):
        exact = Exact.of(values)
        seen.values.add(_numpy(nearest.cast(values, pa.float64())), exact)


def _observe_integers(array: pa.Array, seen: Seen, is_countless: bool) -> None:
    values = array.drop_null()
    type_ = values.type
    if pa.types.is_temporal(type_):
        storage = pa.int32() if type_.bit_width == 32 else pa.int64()
        if type_.bit_width not in (32, 64):
            seen.distinct.forgo()  # an interval of months, days and nanoseconds has no order
            return
        integers = values.view(storage).cast(pa.int64())
        seen.distinct.forgo()
    elif type_ == pa.uint64():
        try:
            integers = values.cast(pa.int64())
        except pa.ArrowInvalid:
            integers = values
    else:
        integers = values.cast(pa.int64())
    seen.values.add(_numpy(integers))
    if not is_countless:
        seen.distinct.add(values)


# -- bytes and text -------------------------------------------------------------------------------


def _is_bytes(type_: pa.DataType) -> bool:
    return is_bytes(type_) or is_text(type_) or pa.types.is_fixed_size_binary(type_)


def _observe_bytes(array: pa.Array, seen: Seen, is_countless: bool) -> None:
    sizes = _byte_sizes(array)
    seen.sizes.add(sizes)
    if not len(sizes):
        return
    _note_images(array, seen)
    seen.num_not_text = 0 if not seen.images and all_text(array) else 1
    if sizes.max() > DISTINCT_BYTES:
        seen.distinct.forgo()
    elif not is_countless:
        seen.distinct.add(_plain(array).drop_null())


def _byte_sizes(array: pa.Array) -> np.ndarray:
    import pyarrow.compute as pc

    if not is_bytes_view(array.type):
        return _numpy(pc.binary_length(array).drop_null().cast(pa.int64()))
    # pyarrow has no function for views. The first four bytes of each view are its length.
    views = np.frombuffer(array.buffers()[1], np.int32).reshape(-1, 4)
    sizes = views[array.offset : array.offset + len(array), 0].astype(np.int64)
    return sizes[_numpy(array.is_valid())] if array.null_count else sizes


def _plain(array: pa.Array) -> pa.Array:
    """Return views as ordinary binary, which more functions of pyarrow support."""
    if array.type == pa.binary_view():
        return array.cast(pa.binary())
    return array.cast(pa.string()) if array.type == pa.string_view() else array


def _data_of(array: pa.Array, limit: int) -> Iterator[memoryview]:
    """Yield the bytes of the first `limit` values that are not null, without copying."""
    left = limit
    for scalar in array:
        if left <= 0:
            return
        if scalar.is_valid:
            left -= 1
            yield describe.data_of(scalar)


def _note_images(array: pa.Array, seen: Seen) -> None:
    if all(describe.image_header(data) is None for data in _data_of(array, _IMAGE_SAMPLE)):
        return
    sides: dict[str, tuple[list[int], list[int]]] = {}
    for data in _data_of(array, len(array)):
        header = describe.image_header(data)
        if header is not None:
            widths, heights = sides.setdefault(header.kind, ([], []))
            widths.append(header.width)
            heights.append(header.height)
    for kind, both in sides.items():
        seen.images[kind] = (Range(), Range())
        for side, pixels in zip(seen.images[kind], both, strict=True):
            side.add(np.array(pixels, np.int64))


def all_text(array: pa.Array) -> bool:
    """Whether all values are UTF-8 and the first values look like text."""
    return first_are_text(array) and is_utf_8(array)


def first_are_text(array: pa.Array) -> bool:
    """Whether the first values look like text."""
    return all(describe.text(data) is not None for data in _data_of(array, _TEXT_SAMPLE))


def is_utf_8(array: pa.Array) -> bool:
    """Whether all values are UTF-8."""
    values: Any = _plain(array)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return True
    is_large = pa.types.is_large_binary(values.type)
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    try:
        values.cast(pa.large_string() if is_large else pa.string())
    except pa.ArrowInvalid:
        return False
    return True
