"""Finds image columns for a conversion, scales their images down, and encodes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.joined import join
from penstock.columns.numbers import memoryviews
from penstock.columns.types import ImageType, is_embedded_image, is_image
from penstock.contract.format import FormatInfo
from penstock.datasets.dataset import Dataset
from penstock.datasets.take import take
from penstock.errors import FormatError, LimitError, PenstockError, SchemaError, UnsupportedError
from penstock.payloads.image_bytes import PICTURE_HINT, bytes_of, embedded, only_paths
from penstock.storage.image_names import codec_of_name, named_after_codec

_LOOKED_AT = 16
"""The number of records read to find out whether a column of bytes holds images."""

_MIXED = (
    "pictures of one channel with few values or 16 bits, as masks have, were encoded again, which changes their values; "
    "convert(..., masks=[{!r}]) keeps them"
)
_UPRIGHT = (
    "pictures were turned as their EXIF orientation says, because they were encoded again; boxes, points and masks of "
    "the stored pixels no longer fit"
)
_WITHOUT_PATHS = "Hugging Face's structs of an image became images; the paths in them were left out"


@dataclass(frozen=True, slots=True)
class Pictures:
    """The image columns and the change. Without `codec`, `quality` and `max_side` only the column type changes."""

    columns: tuple[str, ...]
    codec: str | None = None
    quality: int | None = None
    max_side: int | None = None
    masks: tuple[str, ...] = ()
    """Those of the columns that hold masks, which are resized by the nearest pixel and become PNGs."""
    embedded: tuple[str, ...] = ()
    """Those of the columns that are Hugging Face's structs of an image, which become images."""
    codecs: dict[str, str] = attribute(default_factory=dict[str, str], hash=False)
    """The codecs of those of the columns whose type does not say it, but the names of their pictures' files do."""
    files: tuple[str, str] | None = None
    """One of the columns, and the column of the names of its pictures' files, whose endings follow the codec."""
    check: Callable[[pa.Array], None] | None = attribute(default=None, repr=False, compare=False)
    """Raises the error of a damaged image that the target format cannot store; None if it stores all."""
    found: dict[str, None] = attribute(default_factory=dict[str, None], repr=False, compare=False)
    """The notes so far."""

    @property
    def is_rewritten(self) -> bool:
        return not (self.codec is None and self.quality is None and self.max_side is None)

    @property
    def is_changed(self) -> bool:
        """Whether the values that were read differ from those to be written."""
        return self.is_rewritten or bool(self.embedded)

    @property
    def needs_intact(self) -> bool:
        """Whether a conversion cannot store damaged images, or those of which there is only a path."""
        return self.is_changed or self.check is not None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the changes that were made so far did to the pictures."""
        return tuple(self.found)

    def field(self, field: pa.Field) -> pa.Field:
        if field.name not in self.columns:
            return field
        if field.name in self.masks:
            return field.with_type(ImageType("png"))
        codec = field.type.codec if isinstance(field.type, ImageType) else ""
        codec = codec or self.codecs.get(field.name, "")
        return field.with_type(ImageType(codec if self.codec is None else self.codec))

    def batch(self, batch: pa.RecordBatch, threads: int | None) -> pa.RecordBatch:
        """Return a batch with changed pictures. An error has the number of the record in the batch."""
        columns: list[pa.Array] = []
        fields: list[pa.Field] = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            after = self.field(field)
            if field.name in self.columns:
                try:
                    column = self._changed(field.name, column, threads)
                except PenstockError as error:
                    if isinstance(error, FormatError) and not isinstance(error, LimitError):
                        error.hint = PICTURE_HINT
                    raise error.at(field=field.name) from None
            if column.type != after.type:
                stored = column.storage if isinstance(column, pa.ExtensionArray) else column
                column = pa.ExtensionArray.from_storage(after.type, stored.cast(pa.binary()))
            columns.append(column)
            fields.append(after)
        made = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return made if self.files is None else _with_endings(made, *self.files)

    def _only_paths(self, batch: pa.RecordBatch) -> dict[int, SchemaError]:
        """Return an error for each record with a picture of which there is only a path, by its row."""
        found: dict[int, SchemaError] = {}
        for name in self.embedded:
            for row, error in only_paths(batch.column(name)).items():
                error.at(field=name)
                found[row] = error
        return dict(sorted(found.items()))

    def intact(
        self,
        batch: pa.RecordBatch,
        threads: int | None,
        tell: Callable[[int, FormatError | SchemaError], None],
    ) -> pa.RecordBatch:
        """Like `batch`, without the records whose pictures are damaged. `tell` is called with the row and the error of
        each."""
        made: list[pa.RecordBatch] = []
        elsewhere = self._only_paths(batch)
        for row, error in elsewhere.items():
            tell(row, error)
        edges = [-1, *elsewhere, batch.num_rows]
        todo = [(before + 1, end) for before, end in pairwise(edges)][::-1]
        while todo:
            first, end = todo.pop()
            if first == end and (made or todo):
                continue
            try:
                made.append(self._intact_part(batch.slice(first, end - first), threads))
            except FormatError as error:
                if error.record is None or isinstance(error, LimitError):
                    raise
                bad = first + error.record
                tell(bad, error)
                todo += [(bad + 1, end), (first, bad)]
        return join(made)

    def _intact_part(self, batch: pa.RecordBatch, threads: int | None) -> pa.RecordBatch:
        check = self.check
        if self.is_changed:
            batch = self.batch(batch, threads)
        if check is None:
            return batch
        for name in self.columns:
            try:
                check(batch.column(name))
            except FormatError as error:
                raise error.at(field=name) from None
        return batch

    def _changed(self, name: str, column: pa.Array, threads: int | None) -> pa.Array:
        from penstock.payloads import images, masks  # imported here: only some conversions need it

        if name in self.embedded:
            column = bytes_of(column)
            self.found[f"field {name!r}: {_WITHOUT_PATHS}"] = None
        if name in self.masks:
            return masks.resize_masks(column, self.max_side, threads=threads)
        if not self.is_rewritten:
            return pa.ExtensionArray.from_storage(ImageType(), column.cast(pa.binary()))
        how: dict[str, Any] = {"quality": self.quality, "max_side": self.max_side}
        made = images.reencode(column, self.codec, threads=threads, **how)
        self._note(name, bytes_of(column), made.storage)
        return made

    def _note(self, name: str, before: Any, after: Any) -> None:
        from penstock.payloads.orientation import orientations

        mixed, turned = f"field {name!r}: {_MIXED.format(name)}", f"field {name!r}: {_UPRIGHT}"
        if mixed not in self.found and _has_mixed_mask(before, after):
            self.found[mixed] = None
        if turned not in self.found:
            ways = orientations(before)
            rows = np.flatnonzero(ways > 1).tolist()
            if any(before[row].as_py() != after[row].as_py() for row in rows):
                self.found[turned] = None


def _with_endings(batch: pa.RecordBatch, pictures: str, files: str) -> pa.RecordBatch:
    """Give the names of files the endings of their pictures' codecs."""
    from penstock.payloads.images import image_sizes

    codecs = image_sizes(batch.column(pictures)).field("codec").to_pylist()
    names = batch.column(files).to_pylist()
    pairs = zip(names, codecs, strict=True)
    made = [n if n is None or c is None else named_after_codec(n, c) for n, c in pairs]
    place = batch.schema.get_field_index(files)
    return batch.set_column(place, batch.schema.field(files), pa.array(made, pa.string()))


def _has_mixed_mask(before: Any, after: Any) -> bool:
    """Whether one of the first masks of a column got other values than it had."""
    from penstock.payloads.masks import FEW_VALUES, is_one_channel_png, mask_values

    rows = [row for row, data in enumerate(memoryviews(before)) if is_one_channel_png(data)]
    for row in rows[:_LOOKED_AT]:
        old, new = before[row].as_py(), after[row].as_py()
        if old == new:
            continue
        values, now = mask_values(old), mask_values(new)
        is_deep = values.dtype != np.uint8
        if len(values) > FEW_VALUES and not is_deep:
            continue
        # Indices of a palette became colours, and 16 bits became 8.
        if now.ndim != values.ndim or is_deep or not np.isin(now, values).all():
            return True
    return False


def pictures_of(
    dataset: Dataset,
    columns: Sequence[str],
    images: str | Sequence[str] | None,
    asked: dict[str, Any],
    masks: Sequence[str],
    *,
    target: FormatInfo,
) -> Pictures | None:
    """Return the image columns among `columns`, with the changes that the caller asked for.

    `images` names the columns, or is "auto". "auto" takes the columns of an image type. If the target format stores
    images specially, or if a change is requested and no column has such a type, "auto" also takes the columns of
    bytes whose first values are images. `masks` are image columns, too.

    Raises:
        ValueError: a change of images is requested, but no column holds images; or `masks` without a change.
        SchemaError: a named column does not exist, or does not hold bytes.
    """
    made = _change_of(asked)
    _check_named(dataset.schema, columns, masks)
    if masks and not made.is_rewritten:
        raise ValueError("masks= says how images are changed: it needs max_side= or image_mode=")
    if images == "auto":
        named = _found(dataset, columns, target, looks=made.is_rewritten)
    else:
        named = [images] if isinstance(images, str) else list(images or ())
        _check_named(dataset.schema, columns, named)
    named += [name for name in masks if name not in named]
    if not named:
        if made.is_rewritten:
            raise ValueError("no column holds images; images= can name the columns")
        return None
    structs = [name for name in named if is_embedded_image(dataset.schema.field(name).type)]
    made = replace(made, columns=tuple(named), masks=tuple(masks), embedded=tuple(structs))
    return replace(made, codecs=_codecs(dataset, named)) if target.shows_codecs else made


def _codecs(dataset: Dataset, columns: Sequence[str]) -> dict[str, str]:
    """Return the codec of the columns of images of any codec, if each record is a file, and all names say the same."""
    types = {name: dataset.schema.field(name).type for name in columns}
    unknown = [n for n, type_ in types.items() if isinstance(type_, ImageType) and not type_.codec]
    found: set[str | None] = set()
    if unknown:
        for codec in _codecs_of_names(dataset):
            found.add(codec)
            if len(found) > 1 or codec is None:
                return {}
    return dict.fromkeys(unknown, found.pop() or "") if found else {}


def _codecs_of_names(dataset: Dataset) -> Iterator[str | None]:
    """Yield the codec that the name of each record's file says."""
    for shard in range(len(dataset.files.paths)):
        reader = dataset.files.own(shard)
        for record in range(reader.num_records):
            place = reader.place(record)
            yield None if place is None else codec_of_name(place[0])


def _found(
    dataset: Dataset, columns: Sequence[str], target: FormatInfo, *, looks: bool
) -> list[str]:
    """Return the columns of an image type, and those whose first values are images: of bytes if the target stores images
    specially, or, with `looks`, if there is no such type; of structs if the target stores none, or with `looks`."""
    types = {name: dataset.schema.field(name).type for name in columns}
    named = [name for name in columns if is_image(types[name])]
    looks_at_bytes = target.holds_images or (looks and not named)
    looks_at_structs = looks or not target.holds_structs
    candidates = [
        name
        for name in columns
        if name not in named
        and _is_bytes(types[name])
        and (looks_at_structs if is_embedded_image(types[name]) else looks_at_bytes)
    ]
    return named + _looking_like_images(dataset, candidates)


def _change_of(asked: dict[str, Any]) -> Pictures:
    from penstock.payloads.images import codec_of

    mode = asked.get("image_mode")
    codec = None if mode is None else codec_of(mode)
    return Pictures((), codec, asked.get("jpeg_quality"), asked.get("max_side"))


def _check_named(schema: pa.Schema, columns: Sequence[str], named: Sequence[str]) -> None:
    for name in named:
        if name not in columns or not _is_bytes(schema.field(name).type):
            raise SchemaError("this column does not exist, or cannot hold images", field=name)


def _is_bytes(type_: pa.DataType) -> bool:
    is_plain = pa.types.is_binary(type_) or type_ == pa.binary_view()
    return is_image(type_) or is_plain or is_embedded_image(type_)


def _first_records(dataset: Dataset, columns: list[str]) -> pa.RecordBatch | None:
    if dataset.options.damage != "error":
        return next(dataset.scan(columns, batch_records=_LOOKED_AT, threads=1), None)
    count = min(_LOOKED_AT, len(dataset))
    return take(dataset, list(range(count)), columns) if count else None


def _looking_like_images(dataset: Dataset, candidates: list[str]) -> list[str]:
    first = _first_records(dataset, candidates) if candidates else None
    if first is None:
        return []
    found: list[str] = []
    for name in candidates:
        column: Any = first.column(name)
        column = embedded(column) if is_embedded_image(column.type) else column
        column = column.cast(pa.binary()).drop_null()
        likely = sum(_is_image(column.slice(place, 1)) for place in range(len(column)))
        # Some heads may be damaged.
        if likely and likely >= len(column) / (2 if dataset.options.damage == "skip" else 1):
            found.append(name)
    return found


def _is_image(column: pa.Array) -> bool:
    from penstock.payloads.images import image_sizes

    try:
        image_sizes(column)
    except (FormatError, LimitError, UnsupportedError):
        return False
    return True
