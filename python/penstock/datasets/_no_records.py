"""The reader for an empty file of a format whose files are never empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.inferred import InferredFrom
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Format, Reader, SkippedRegion, Stretch
from penstock.errors import FormatError, LimitError, TruncatedError
from penstock.framing.read.raw import RAW_SCHEMA
from penstock.storage.base import Source, Storage
from penstock.storage.manifest_mark import ManifestMetError
from penstock.storage.skipped import MANIFEST, NO_BYTES, SkippedFile


class NoRecords(Reader):
    """A reader without records. Its schema is the given schema, or the schema of an empty TFRecord file."""

    def __init__(self, schema: Any) -> None:
        is_schema = isinstance(schema, pa.Schema)
        unknown = RAW_SCHEMA.with_metadata(InferredFrom(0).metadata)
        self.schema: pa.Schema = schema if is_schema else unknown

    @property
    def num_records(self) -> int:
        return 0

    def chunks(self) -> Iterator[Chunk[Any]]:
        return iter(())

    def pick(self, records: np.ndarray) -> Iterator[tuple[Chunk[Any], np.ndarray]]:
        return iter(())

    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        raise IndexError("an empty file has no records")  # never called: there are no chunks

    def close(self) -> None:
        pass


class LeftOut(NoRecords):
    """A reader for a manifest that was met among shards."""

    def __init__(self, schema: Any, error: ManifestMetError) -> None:
        super().__init__(schema)
        self._path = error.file or ""

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        return (SkippedFile(self._path, MANIFEST),)


class Unreadable(NoRecords):
    """A reader for a file that cannot be opened because it is damaged, where damage is skipped. All of the file is one
    skipped region."""

    def __init__(self, schema: Any, error: FormatError, source: Source) -> None:
        super().__init__(schema)
        self.error = error.with_traceback(None)  # a traceback would keep the file open
        self.region = SkippedRegion(source.path, 0, source.size, None, error.message)

    @property
    def uncounted(self) -> Sequence[SkippedRegion]:
        return (self.region,)

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        del threads
        return iter((self.region,))


def made_or_unreadable(make: Callable[[], Reader], schema: Any, source: Source) -> Reader:
    """Return the reader that `make` returns, or `Unreadable` if the file is too damaged to be opened."""
    try:
        return make()
    except LimitError:
        raise  # the file may be good
    except FormatError as error:
        return Unreadable(schema, error, source)


def unless_manifest(make: Callable[[], Reader], schema: Any, is_alone: bool) -> Reader:
    """Return the reader that `make` returns, or `LeftOut` for a manifest that is not the only file."""
    try:
        return make()
    except ManifestMetError as error:
        if is_alone:
            raise
        return LeftOut(schema, error)


def format_of_others(
    error: FormatError,
    paths: Sequence[str],
    storage: Storage,
    format_of: Callable[[Source], Format],
) -> Format:
    """Return the format of the first file that has one, for a file whose format is unknown. Raise `error` if there is no
    such file."""
    for path in paths:
        source = storage.source(path)
        try:
            return format_of(source)
        except FormatError:
            continue
        finally:
            source.close()
    raise error


def raising(error: FormatError) -> Reader:
    """Raise the error that prevents opening a file."""
    raise error


def nothing_in(readers: Iterable[Reader], paths: Sequence[str], format_name: str) -> FormatError:
    """The error for a dataset of files without bytes and unreadable files only."""
    found = [reader.error for reader in readers if isinstance(reader, Unreadable)]
    return found[0] if found else no_bytes(paths, format_name)


def skipped_of(reader: Reader, path: str) -> Iterator[SkippedFile]:
    """Yield the file itself if it has no bytes, and what the reader skipped in a folder."""
    if isinstance(reader, NoRecords) and not (reader.uncounted or reader.skipped_files):
        yield SkippedFile(path, NO_BYTES)
    yield from reader.skipped_files


def raise_first_fault(readers: Iterable[Reader]) -> None:
    """Raise the first fault in the files, if there is one. If all records are damaged, their fields are unknown, and must
    not be read as one column of bytes."""
    for reader in readers:
        chunk = next(reader.chunks(), None)
        if chunk is not None:
            reader.decode(chunk, None, None)


def no_bytes(paths: Sequence[str], format_name: str) -> TruncatedError:
    """The error for a dataset of such files only."""
    others = len(paths) - 1
    more = f", and the {others} others have none either" if others else ""
    return TruncatedError(
        f"the file has no bytes{more}; a {format_name} file always has some",
        file=paths[0],
        hint="write or copy it again; it was truncated, or never finished",
    )
