"""Folders of images: one folder per class, a table of labels next to the images, or images alone.

| layout | columns |
|---|---|
| `cat/a.jpg`, `dog/b.jpg` | `image`, `label`: a dictionary of the folders' names, sorted |
| a table `metadata` or `labels` (`.csv`, `.json`, `.jsonl`, `.ndjson`, `.parquet`) | `image`, then the table's columns except the file name |
| `a.jpg`, `b.jpg` | `image`, `file_name` |

Records are in the order of the table's rows, or of the file names. If there are class folders and a table without a
column `label`, the folders provide the labels. The layouts are those that torchvision and Hugging Face's datasets read;
there is no specification.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import (
    check_columns,
    check_records,
    conform,
    empty_columns,
    projected,
)
from penstock.columns.inferred import InferredFrom
from penstock.columns.selection import Projection, Selection
from penstock.columns.types import ImageType
from penstock.contract.format import (
    Chunk,
    Format,
    FormatInfo,
    Options,
    Reader,
    SkippedRegion,
    Stretch,
)
from penstock.contract.regions import Region
from penstock.errors import FormatError, LimitError, UnsupportedError
from penstock.formats.imagefolder.options import FILE_NAME, IMAGE, LABEL, WriteOptions
from penstock.storage import image_names
from penstock.storage.folder import Folder, FolderSink
from penstock.storage.skipped import CAPTION, NO_IMAGE, NO_ROW, TEXT, SkippedFile
from penstock.tuned import CHUNK_BYTES

if TYPE_CHECKING:
    from penstock.formats.imagefolder.writer import ImageFolderWriter
    from penstock.storage.base import Sink, Source

CHUNK_RECORDS = 1024
PICK_RECORDS = 64
"""How many records of a take one thread reads; each record is a file."""

_MAGIC = np.frombuffer(b"\xff\xd8\x89PRIP5P6BMGIIIMM", ">u2").astype(np.uint16)
"""The first two bytes of JPEG, PNG, WebP (a RIFF file), PGM, PPM, BMP, GIF and TIFF."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading a folder of images."""

    table: str | None = None
    """The file name of the table in the folder. None finds a table called `metadata` or `labels`; "" reads no table."""
    file_names: bool | None = None
    """True adds the column `file_name`, False leaves it out. None adds it if there are neither classes nor a table."""
    other_files: str = "error"
    """"error" raises an error for a file that is not an image, except text such as a README, and for an image that
    the table does not name. "ignore" skips such files."""
    follow_links: bool = False
    """True follows links to files and folders, also out of the folder. False reads only links to files in the folder;
    any other link is an error."""


class ImageFolderFormat(Format):
    """Folders of images as a penstock format."""

    info = FormatInfo(
        "imagefolder",
        ("/",),
        holds_structs=False,
        holds_images=True,
        picture_files=(IMAGE, FILE_NAME),
        reads_images=True,
        whole_dictionaries=("*",),
        is_folder=True,
        loses_one=True,
        loses_dtypes=True,
    )
    read_options = ReadOptions

    @property
    def write_options(self) -> type:
        return WriteOptions

    def sniff(self, head: bytes, size: int) -> bool:
        """Return False: a file is not a folder."""
        return False

    def open(self, source: Source, options: Options) -> ImageFolderReader:
        """List the folder and read its table.

        Raises:
            UnsupportedError: the source is not a folder, or raw=True.
            FormatError: a file is not an image, a link leads out of the folder, the table is damaged, or the table
                names a file that does not exist.
        """
        return ImageFolderReader(source, options, self.own_options(options))

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.imagefolder._regions import files

        reader = self.open(source, options)
        assert isinstance(source, Folder), "open has refused anything else"
        return files(source, record, reader.file_numbers)

    def create(
        self, sink: Sink, schema: pa.Schema, options: Any, threads: int
    ) -> ImageFolderWriter:
        from penstock.formats.imagefolder.writer import ImageFolderWriter

        if not isinstance(sink, FolderSink):
            raise UnsupportedError("only write and convert can create a folder of images")
        return ImageFolderWriter(sink, schema, options)

    def check_images(self, images: pa.Array, options: Any) -> None:
        from penstock.payloads.images import image_sizes

        del options
        image_sizes(images)  # files get their endings from the heads


class ImageFolderReader(Reader):
    """One open folder of images."""

    def __init__(self, source: Source, options: Options, own: ReadOptions) -> None:
        if not isinstance(source, Folder):
            raise UnsupportedError("is not a folder", file=source.path)
        if own.follow_links:
            source.follow_links()
        elif source.refused is not None:
            raise source.refused
        self._folder = source
        self._path = source.path
        self._limits = options.limits
        self._how = own
        self._damage = options.damage
        self._missing: list[SkippedRegion] = []
        if self._how.other_files not in ("error", "ignore"):
            raise ValueError(f"other_files={self._how.other_files!r} is not 'error' or 'ignore'")
        table_file = self._table_file()
        images: list[int] = []
        others: list[int] = []
        for number, entry in enumerate(source.entries):
            if image_names.is_image_name(entry.name):
                images.append(number)
            elif number != table_file:
                others.append(number)
        self._skipped_files = [*source.skipped, *self._beside(others, images)]
        table = None
        self._files: np.ndarray = np.array(images, np.int64)
        if table_file is not None:
            self._files, table = self._read_table(table_file, images)
        self._columns = self._columns_beside(table)
        fields = [pa.field(IMAGE, ImageType(), nullable=False), *self._columns.schema]
        # The metadata marks a schema inferred from no records, which must not apply to other shards.
        is_empty = not len(self._files)
        self.schema: pa.Schema = pa.schema(fields, InferredFrom(0).metadata if is_empty else None)
        if options.schema is not None:
            check_columns(options.schema, self.schema, self._path, options.settled)
            self.schema = options.schema
        sizes = np.array([entry.size for entry in source.entries], np.int64)[self._files]
        self._ends: np.ndarray = np.cumsum(sizes)

    @property
    def file_numbers(self) -> np.ndarray:
        """The number of each record's file among the folder's entries."""
        return self._files

    def _beside(self, others: list[int], images: list[int]) -> Iterator[SkippedFile]:
        """Yield the files that are not images, as skipped files."""
        if not others:
            return
        names = [entry.name for entry in self._folder.entries]
        stems = {os.path.splitext(names[number])[0] for number in images}
        for number in others:
            name = names[number]
            path = f"{self._path}/{name}"
            if image_names.goes_with_images(path, partial(self._first_bytes, number)):
                yield SkippedFile(path, CAPTION if os.path.splitext(name)[0] in stems else TEXT)
            elif self._how.other_files == "error":
                raise self._refused(number, "is not an image that penstock decodes")
            else:
                yield SkippedFile(path, NO_IMAGE)

    def _first_bytes(self, number: int, length: int) -> bytes:
        return self._folder.read_head(number, length).to_bytes()

    def _refused(self, number: int, message: str) -> FormatError:
        path = f"{self._path}/{self._folder.entries[number].name}"
        return FormatError(message, file=path, hint='open(..., other_files="ignore")')

    # -- the columns next to the images -----------------------------------------------------------

    def _table_file(self) -> int | None:
        """Return the table's number among the entries, or None if there is no table."""
        names = {entry.name: number for number, entry in enumerate(self._folder.entries)}
        if self._how.table:
            if self._how.table not in names:
                raise FormatError(f"has no table {self._how.table!r}", file=self._path)
            return names[self._how.table]
        found = [name for name in names if _is_table_name(name)]
        if self._how.table == "" or not found:
            return None
        if len(found) > 1:
            raise FormatError(
                f"has several tables: {', '.join(found)}",
                file=self._path,
                hint=f'open(..., table={found[0]!r}, other_files="ignore")',
            )
        return names[found[0]]

    def _read_table(self, number: int, images: list[int]) -> tuple[np.ndarray, pa.Table]:
        """Return the file number of each row, and the other columns."""
        from penstock.formats.imagefolder._table import name_column, read_table

        entry = self._folder.entries[number]
        path = f"{self._path}/{entry.name}"
        table = read_table(path, self._limits, self._folder.opened(number))
        column = name_column(table, path)
        files = self._named(table.column(column), images)
        if files.null_count:
            self._missing = list(self._missing_images(table, column, files, path))
            table = table.filter(files.is_valid())
            files = files.drop_null()
        files = np.asarray(files, np.int64)
        left = set(images).difference(files.tolist())
        if left and self._how.other_files == "error":
            raise self._refused(min(left), f"is not named by the table {entry.name}")
        for one in sorted(left):
            name = self._folder.entries[one].name
            self._skipped_files.append(SkippedFile(f"{self._path}/{name}", NO_ROW))
        rest = table.drop_columns([column])
        if IMAGE in rest.column_names:
            raise FormatError(
                f"the table names the images in its column {column!r}, and has another column {IMAGE!r}",
                file=path,
                field=IMAGE,
                hint='give one of the two another name, or open(..., table="", other_files="ignore")',
            )
        return files, rest

    def _missing_images(
        self, table: pa.Table, column: str, files: pa.Array, path: str
    ) -> Iterator[SkippedRegion]:
        """Yield what the table names and the folder does not have as skipped records. Unless damage is skipped, raise
        FormatError for the first one."""
        for row in np.flatnonzero(np.asarray(files.is_null())).tolist():
            name = table.column(column)[row].as_py()
            if self._damage != "skip":
                raise FormatError(
                    f"names the image {name!r}, which is not in the folder",
                    file=path,
                    record=row,
                    field=column,
                    hint='open(..., damage="skip") leaves such records out',
                )
            reason = (
                f"record {row} of the table names the image {name!r}, which is not in the folder"
            )
            yield SkippedRegion(path, 0, 0, 1, reason)

    def _named(self, names: pa.ChunkedArray, images: list[int]) -> pa.Array:
        """Return the number of each named file, or null if there is no such file."""
        import pyarrow.compute as pc

        texts = [(self._folder.entries[one].name, one) for one in images]
        known = [(text, one) for text, one in texts if text.isascii() or _is_unicode(text)]
        bare = pc.replace_substring_regex(names.cast(pa.large_string()), r"^\./", "")
        places = pc.index_in(
            bare, value_set=pa.array([text for text, _ in known], pa.large_string())
        )
        numbers = pa.array([one for _, one in known], pa.int64())
        return numbers.take(places.combine_chunks())

    def _columns_beside(self, table: pa.Table | None) -> pa.RecordBatch:
        names = [self._folder.entries[number].name for number in self._files.tolist()]
        columns: dict[str, Any] = {}
        if table is not None:
            pairs = zip(table.column_names, table.columns, strict=True)
            columns = {name: column.combine_chunks() for name, column in pairs}
        in_folders = bool(self._folder.folders) and all("/" in name for name in names)
        if in_folders and LABEL not in columns:
            columns = {LABEL: self._classes(names), **columns}
        has_names = self._how.file_names
        if has_names is None:
            has_names = table is None and not in_folders
        if has_names:
            message = (
                f"the file name is not UTF-8, so the column {FILE_NAME} cannot hold it; "
                "leave it out with file_names=False"
            )
            columns[FILE_NAME] = self._texts(names, message)
        if not columns:
            return empty_columns(len(names))
        return pa.record_batch(list(columns.values()), list(columns))

    def _classes(self, names: list[str]) -> pa.Array:
        """Return the class of each file: the name of its folder."""
        classes = sorted(self._folder.folders)
        numbers = {name: number for number, name in enumerate(classes)}
        codes = [numbers[name.split("/", 1)[0]] for name in names]
        labels = self._texts(classes, "the name of a class is not UTF-8, so it cannot be a label")
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), labels)

    def _texts(self, names: list[str], message: str) -> pa.Array:
        try:
            return pa.array(names, pa.string())
        except UnicodeEncodeError:
            wrong = next(name for name in names if not _is_unicode(name))
            raise FormatError(message, file=f"{self._path}/{wrong}") from None

    # -- records ------------------------------------------------------------------------------------

    @property
    def num_records(self) -> int:
        return len(self._files)

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        return self._skipped_files

    def place(self, record: int) -> tuple[str, int, int] | None:
        entry = self._folder.entries[int(self._files[record])]
        return f"{self._path}/{entry.name}", 0, entry.size

    def chunks(self) -> Iterator[Chunk[np.ndarray | None]]:
        first = 0
        while first < self.num_records:
            start = int(self._ends[first - 1]) if first else 0
            last = int(np.searchsorted(self._ends, start + CHUNK_BYTES, "right"))
            last = min(max(last, first + 1), first + CHUNK_RECORDS, self.num_records)
            yield Chunk(first, last - first, start, int(self._ends[last - 1]))
            first = last

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        yield from self._missing
        yield from super().found_by(threads)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[np.ndarray | None], Selection]]:
        check_records(records, self.num_records, self._path)
        for first in range(0, len(records), PICK_RECORDS):
            some = records[first : first + PICK_RECORDS]
            chunk: Chunk[np.ndarray | None] = Chunk(int(some[0]), len(some), 0, 0, data=some)
            yield chunk, None

    def record_numbers(self, chunk: Chunk[np.ndarray | None]) -> np.ndarray:
        return super().record_numbers(chunk) if chunk.data is None else chunk.data

    def decode(
        self, chunk: Chunk[np.ndarray | None], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        if chunk.data is None:
            numbers = np.arange(chunk.first_record, chunk.first_record + chunk.num_records)
        else:
            numbers = chunk.data
        if records is not None:
            numbers = numbers[records]
        wanted = projected(self.schema, columns, self._path)
        arrays: list[Any] = []
        rows = pa.array(numbers)
        for name in wanted.names:
            if name == IMAGE:
                arrays.append(self._images(numbers, wanted.field(name).type))
            else:
                arrays.append(self._columns.column(name).take(rows))
        if not arrays:
            return empty_columns(len(numbers))
        names = wanted.names
        return conform(pa.record_batch(arrays, names), wanted, self._path)

    def _images(self, numbers: np.ndarray, type_: Any) -> Any:
        files = self._files[numbers]
        try:
            data, lengths = self._folder.read_files(files.tolist(), self._limits)
        except LimitError as error:
            if error.record is not None:
                error.record = int(numbers[error.record])
            raise error.at(file=self._path) from None
        ends = np.cumsum(lengths)
        values = pa.py_buffer(data)
        self._check_magic(np.frombuffer(values, np.uint8), ends, lengths, numbers)
        offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int32))
        stored = pa.Array.from_buffers(pa.binary(), len(files), [None, offsets, values])
        type_ = type_ if isinstance(type_, ImageType) else ImageType()
        return pa.ExtensionArray.from_storage(type_, stored.cast(type_.storage_type))

    def _check_magic(
        self, data: np.ndarray, ends: np.ndarray, lengths: np.ndarray, numbers: np.ndarray
    ) -> None:
        """Raise FormatError for the first file that does not start like an image."""
        wrong = lengths < 2
        starts = (ends - lengths)[~wrong]
        first_two = data[starts].astype(np.uint16) << 8 | data[starts + 1]
        wrong[~wrong] = ~np.isin(first_two, _MAGIC)
        if wrong.any():
            record = int(numbers[np.flatnonzero(wrong)[0]])
            name = self._folder.entries[int(self._files[record])].name
            raise FormatError(
                "is not an image, although its name ends like one",
                file=f"{self._path}/{name}",
                record=record,
                byte=0,
            )

    def close(self) -> None:
        self._folder.close()


def _is_table_name(name: str) -> bool:
    stem, ending = os.path.splitext(name.lower())
    return image_names.is_table_name(name) or (
        stem in image_names.TABLE_STEMS and ending == ".json"
    )


def _is_unicode(name: str) -> bool:
    return name.encode("utf-8", "replace").decode() == name
