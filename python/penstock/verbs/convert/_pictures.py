"""Finds image columns for a conversion, scales their images down, and encodes them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.columns.types import ImageType, is_image
from penstock.datasets.dataset import Dataset
from penstock.datasets.take import take
from penstock.errors import FormatError, LimitError, PenstockError, SchemaError, UnsupportedError

_LOOKED_AT = 16
"""The number of records read to find out whether a column of bytes holds images."""

PICTURE_HINT = "penstock repair --decode leaves out the records whose pictures are damaged"


@dataclass(frozen=True, slots=True)
class Pictures:
    """The image columns and the change. Without `codec`, `quality` and `max_side` only the column type changes."""

    columns: tuple[str, ...]
    codec: str | None = None
    quality: int | None = None
    max_side: int | None = None

    @property
    def is_rewritten(self) -> bool:
        return not (self.codec is None and self.quality is None and self.max_side is None)

    def field(self, field: pa.Field) -> pa.Field:
        if field.name not in self.columns:
            return field
        codec = field.type.codec if isinstance(field.type, ImageType) else ""
        return field.with_type(ImageType(codec if self.codec is None else self.codec))

    def batch(
        self, batch: pa.RecordBatch, first_record: int, threads: int | None
    ) -> pa.RecordBatch:
        from penstock.payloads import images  # imported here: only some conversions need it

        columns: list[pa.Array] = []
        fields: list[pa.Field] = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            after = self.field(field)
            if field.name in self.columns:
                try:
                    column = images.reencode(
                        column,
                        self.codec,
                        quality=self.quality,
                        max_side=self.max_side,
                        threads=threads,
                    )
                except PenstockError as error:
                    if error.record is not None:
                        error.record += first_record
                    if isinstance(error, FormatError) and not isinstance(error, LimitError):
                        error.hint = PICTURE_HINT
                    raise error.at(field=field.name) from None
            if column.type != after.type:
                stored = column.storage if isinstance(column, pa.ExtensionArray) else column
                column = pa.ExtensionArray.from_storage(after.type, stored.cast(pa.binary()))
            columns.append(column)
            fields.append(after)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def pictures_of(
    dataset: Dataset,
    columns: Sequence[str],
    images: str | Sequence[str] | None,
    asked: dict[str, Any],
    *,
    target_holds_images: bool,
) -> Pictures | None:
    """Return the image columns among `columns`, with the changes that the caller asked for.

    `images` names the columns, or is "auto". "auto" takes the columns of an image type. If the target format stores
    images specially, or if a change is requested and no column has such a type, "auto" also takes the columns of
    bytes whose first values are images.

    Raises:
        ValueError: a change of images is requested, but no column holds images.
        SchemaError: a named column does not exist, or does not hold bytes.
    """
    made = _change_of(asked)
    if images is None:
        named: list[str] = []
    elif images == "auto":
        named = [name for name in columns if is_image(dataset.schema.field(name).type)]
        if target_holds_images or (made.is_rewritten and not named):
            named += _looking_like_images(dataset, columns)
    else:
        named = [images] if isinstance(images, str) else list(images)
        _check_named(dataset.schema, columns, named)
    if not named:
        if made.is_rewritten:
            raise ValueError("no column holds images; images= can name the columns")
        return None
    return replace(made, columns=tuple(named))


def _change_of(asked: dict[str, Any]) -> Pictures:
    from penstock.payloads.images import codec_of

    mode = asked.get("image_mode")
    codec = None if mode is None else codec_of(mode)
    return Pictures((), codec, asked.get("jpeg_quality"), asked.get("max_side"))


def _check_named(schema: pa.Schema, columns: Sequence[str], named: list[str]) -> None:
    for name in named:
        if name not in columns or not _is_bytes(schema.field(name).type):
            raise SchemaError("this column does not exist, or cannot hold images", field=name)


def _is_bytes(type_: pa.DataType) -> bool:
    return is_image(type_) or pa.types.is_binary(type_) or type_ == pa.binary_view()


def _first_records(dataset: Dataset, columns: list[str]) -> pa.RecordBatch | None:
    if dataset.options.damage != "error":
        return next(dataset.scan(columns, batch_records=_LOOKED_AT, threads=1), None)
    count = min(_LOOKED_AT, len(dataset))
    return take(dataset, list(range(count)), columns) if count else None


def _looking_like_images(dataset: Dataset, columns: Sequence[str]) -> list[str]:
    from penstock.payloads.images import image_sizes

    types = {name: dataset.schema.field(name).type for name in columns}
    candidates = [name for name in columns if _is_bytes(types[name]) and not is_image(types[name])]
    first = _first_records(dataset, candidates) if candidates else None
    if first is None:
        return []
    found: list[str] = []
    for name in candidates:
        column = first.column(name).cast(pa.binary()).drop_null()
        try:
            image_sizes(column)
        except (FormatError, LimitError, UnsupportedError):
            continue
        if len(column):
            found.append(name)
    return found
