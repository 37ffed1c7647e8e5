"""Writes folders of images: one folder per class, and a table if other columns or the record order need one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.columns.batches import same_columns
from penstock.columns.numbers import memoryviews
from penstock.columns.types import is_image
from penstock.contract.format import Writer
from penstock.errors import FormatError, SchemaError, UnsupportedError
from penstock.formats.imagefolder.options import FILE_NAME, IMAGE, LABEL, WriteOptions
from penstock.payloads.image_bytes import PICTURE_HINT
from penstock.storage.folder import FolderSink
from penstock.storage.hidden import is_own
from penstock.storage.image_names import is_image_name, is_table_name
from penstock.storage.skipped import why_not_data

_MOST_NAME_BYTES = 255
_ENDINGS = {"jpeg": "jpg", "tiff": "tif"}
"""Endings that are not the names of their codecs."""
_WITHOUT_NAMES = f"other names, or without the column {FILE_NAME!r}: the files are then numbered"


class ImageFolderWriter(Writer):
    """Writes one folder of images."""

    def __init__(self, sink: FolderSink, schema: pa.Schema, options: WriteOptions) -> None:
        self._sink = sink
        self._schema = schema
        if options.table not in ("auto", "parquet", "csv", "jsonl"):
            raise ValueError(f"table={options.table!r} is not 'auto', 'parquet', 'csv' or 'jsonl'")
        self._check_image()
        names = schema.names
        self._is_named = FILE_NAME in names
        self._has_classes = LABEL in names and _is_classes(schema.field(LABEL).type)
        used = {IMAGE, FILE_NAME} | ({LABEL} if self._has_classes else set())
        beside = [field for field in schema if field.name not in used]
        self._beside = [field.name for field in beside]
        self._kind = "parquet" if options.table == "auto" else options.table
        self._needs_table = bool(beside) or options.table != "auto"
        if self._needs_table:
            from penstock.formats.imagefolder._table import check_kind

            check_kind(pa.schema(beside), self._kind)
        self._names: list[str] = []
        self._parts: list[pa.RecordBatch] = []
        self._classes: set[str] = set()
        self._num_bytes = 0

    def _check_image(self) -> None:
        schema = self._schema
        if len(set(schema.names)) < len(schema.names):
            raise SchemaError("two columns have the same name", file=self._sink.path)
        hint = f"call the column of images {IMAGE!r}; penstock.encode_images makes one of pixels"
        if IMAGE not in schema.names:
            known = ", ".join(schema.names)
            message = f"a folder of images needs a column {IMAGE!r}; the columns are: {known}"
            raise SchemaError(message, file=self._sink.path, hint=hint)
        type_ = schema.field(IMAGE).type
        if not (is_image(type_) or str(type_) in ("binary", "large_binary", "binary_view")):
            message = f"images must be the bytes of image files, not {type_}"
            raise SchemaError(message, file=self._sink.path, field=IMAGE, hint=hint)
        if FILE_NAME in schema.names and not pa.types.is_string(schema.field(FILE_NAME).type):
            raise SchemaError("file names must be strings", file=self._sink.path, field=FILE_NAME)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        same_columns(batch, self._schema, self._sink.path)
        first = len(self._names)
        names = self._batch_names(batch, first)
        images = memoryviews(batch.column(IMAGE))
        for place, (name, image) in enumerate(zip(names, images, strict=True)):
            try:
                self._sink.add(name, [image])
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                message = f"another file or folder already has the name {name!r}"
                refused = self._refused(message, first + place, FILE_NAME)
                raise refused.at(hint=_WITHOUT_NAMES) from None
            self._num_bytes += len(image)
        self._names += names
        if self._beside:
            self._parts.append(batch.select(self._beside))

    def _refused(self, message: str, record: int, field: str) -> SchemaError:
        return SchemaError(message, file=self._sink.path, record=record, field=field)

    def _batch_names(self, batch: pa.RecordBatch, first: int) -> list[str]:
        """Return the path of each record's file, relative to the folder."""
        endings = self._endings(batch.column(IMAGE), first)
        if self._is_named:
            names = batch.column(FILE_NAME).to_pylist()
            for record, name in enumerate(names, first):
                self._check_name(name or "", record)
        else:
            names = [f"{record:08d}.{end}" for record, end in enumerate(endings, first)]
        if not self._has_classes:
            return names
        labels = batch.column(LABEL)
        for name in labels.dictionary.to_pylist():
            self._make_class(name, first)
        classes = labels.to_pylist()
        if None in classes:
            message = "the record has no class, so there is no folder for it"
            raise self._refused(message, first + classes.index(None), LABEL)
        # A name that was read from class folders already starts with its class.
        pairs = zip(classes, names, strict=True)
        return [name if name.startswith(f"{c}/") else f"{c}/{name}" for c, name in pairs]

    def _check_name(self, name: str, record: int) -> None:
        reason = _wrong_name(name)
        if reason is None and not is_image_name(name):
            reason = "does not end with the extension of an image"
        if reason is not None:
            message = f"{name!r} cannot be the name of an image: it {reason}"
            raise self._refused(message, record, FILE_NAME)

    def _make_class(self, name: str | None, record: int) -> None:
        if name is None or name in self._classes:
            return
        reason = "has a '/'" if "/" in name else _wrong_name(name)
        if reason is not None:
            message = f"the class {name!r} cannot be the name of a folder: it {reason}"
            raise self._refused(message, record, LABEL)
        self._sink.make_folder(name)
        self._classes.add(name)

    def _endings(self, column: Any, first: int) -> list[str]:
        """Return the file extension for each image, detected from its content."""
        from penstock.payloads.images import image_sizes

        try:
            sizes = image_sizes(column)
        except (FormatError, UnsupportedError) as error:
            refused = self._refused(error.message, first + (error.record or 0), IMAGE)
            raise refused.at(hint=PICTURE_HINT) from None
        codecs = sizes.field("codec").to_pylist()
        if None in codecs:
            raise self._refused("the record has no image", first + codecs.index(None), IMAGE)
        grey = sizes.field("channels").to_pylist()
        pairs = zip(codecs, grey, strict=True)
        return ["pgm" if (c, n) == ("ppm", 1) else _ENDINGS.get(str(c), str(c)) for c, n in pairs]

    def close(self) -> None:
        if not self._names:
            # An empty table marks the folder as a dataset. CSV is safe: without rows, it cannot be
            # mistaken for a file of another format.
            self._needs_table, self._kind = True, "csv"
        # Without a table, records read back in the order of their names.
        in_order = all(one < two for one, two in zip(self._names, self._names[1:], strict=False))
        if not self._needs_table and in_order:
            return
        from penstock.formats.imagefolder._table import table_bytes

        table = pa.table({FILE_NAME: pa.array(self._names, pa.string())})
        if not self._names:
            others = [name for name in self._schema.names if name not in (IMAGE, FILE_NAME)]
            table = pa.table({name: pa.array([], pa.string()) for name in (FILE_NAME, *others)})
        elif self._beside:
            beside = pa.Table.from_batches(self._parts).unify_dictionaries().combine_chunks()
            for field, column in zip(beside.schema, beside.columns, strict=True):
                table = table.append_column(field, column)
        data = table_bytes(table, self._kind)
        self._sink.add(f"metadata.{self._kind}", [data])
        self._num_bytes += len(data)


def _is_classes(type_: Any) -> bool:
    return pa.types.is_dictionary(type_) and pa.types.is_string(type_.value_type)


def _wrong_name(name: str) -> str | None:
    """Return why a name cannot be used in the folder, or None if it can."""
    if "\\" in name or any(ord(char) < 32 for char in name):
        return "has a backslash or a control character"
    for part in name.split("/"):
        if not part:
            return "is empty, or begins or ends with '/'"
        reason = why_not_data(part, may_begin_with_underscore=True)
        if reason is not None or is_own(part):
            return f"would not be read: {reason or 'penstock keeps its own files under such names'}"
        if len(part.encode("utf-8", "surrogatepass")) > _MOST_NAME_BYTES:
            return f"is longer than {_MOST_NAME_BYTES} bytes"
    return "is the name of a table" if is_table_name(name) else None
