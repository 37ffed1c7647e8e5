"""What framed formats can do besides: abilities of formats, readers and writers whose records are found by walking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock.contract.format import Format, Options, Part, Reader, Writer
from penstock.contract.options import options_from
from penstock.errors import UnsupportedError
from penstock.storage.base import Sink, Source

if TYPE_CHECKING:
    from penstock.framing.damage import DamageScan
    from penstock.framing.framings import Framing
    from penstock.framing.index.sidecar import Index


@runtime_checkable
class Framed(Protocol):
    """A Format whose records are found by walking, and kept in an index. It opens with raw=True: so files
    are verified and indexed, whatever their records hold."""

    framing: Framing


@runtime_checkable
class Surveyed(Framed, Protocol):
    """A framed Format, whose files are verified and repaired record by record."""

    def survey(
        self, source: Source, options: Options, *, payloads: bool = False, salvage: bool = False
    ) -> DamageScan:
        """A reading of the file that goes on after damage and tells all of it."""
        ...

    def create_copy(self, sink: Sink, compression: str, threads: int) -> FrameWriter:
        """A writer that takes frames as they stand, for a file compressed like another."""
        ...


@runtime_checkable
class Appendable(Protocol):
    """A framed Format, to whose files records can be added behind their end."""

    def end_of(self, source: Source, options: Options) -> Index:
        """The index of a file that is whole to its last byte, so that records may follow.

        Raises:
            FormatError: it is not.
            UnsupportedError: nothing can follow in a file of this kind.
        """
        ...


class TextIndex(Protocol):
    """The index that another library keeps beside a file of a framed format, as text."""

    name: str
    """What it is called in `penstock.index(..., text=...)`."""

    def path_for(self, data_path: str) -> str:
        """Where it is looked for."""
        ...

    def lines(self, index: Index, first: int, last: int) -> str:
        """Its lines about some records."""
        ...

    def places(self, data: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        """Where it says that frames start, and how large they are if it does, uint64. Raises
        ValueError where it is no such index."""
        ...


@runtime_checkable
class TextIndexed(Protocol):
    """A framed Format, for whose files another library has an index of its own."""

    text_index: TextIndex


class Indexed(Reader, Protocol):
    """A Reader that needs an index to know where its records lie. See `is_indexed`."""

    @property
    def index(self) -> Index:
        """Where the records lie; found out, and kept, when it is first asked for."""
        ...

    @property
    def has_index(self) -> bool:
        """Whether it is known already where the records lie."""
        ...

    def record_bytes(self) -> np.ndarray:
        """Bytes of each record without its frame, int64[num_records]."""
        ...


def is_indexed(reader: Reader) -> TypeGuard[Indexed]:
    """Whether a reader needs an index. Unlike `isinstance`, this does not ask for it."""
    return hasattr(type(reader), "has_index")


@runtime_checkable
class IndexMaking(Protocol):
    """A Writer that knows where its records are."""

    def index(self) -> Index:
        """Where the records lie, once the writer is closed."""
        ...


@runtime_checkable
class TextIndexMaking(IndexMaking, Protocol):
    """A Writer whose file gets a text index as well, which appears with it."""

    text_index: TextIndex | None
    """None where none is wanted."""


class FrameWriter(Writer, IndexMaking, Protocol):
    """A Writer that takes frames as they stand."""

    def write_frames(
        self, frames: Sequence[Part], lengths: np.ndarray, checksums: np.ndarray
    ) -> None:
        """Append whole frames: their bytes in any number of parts, the uint64 length of each, and the uint32 checksum of
        each payload as it is stored there."""
        ...


def gives_raw_records(fmt: Format) -> bool:
    """Whether records are bytes, which raw=True gives, as a column "record"."""
    return fmt.info.has_raw_records or isinstance(fmt, Framed)


def open_shard(fmt: Format, source: Source, options: Options) -> Reader:
    """Open one file, if its format has what is asked of it: all that is asked of every format alike is
    checked here, so that none need do it.

    Raises:
        TypeError: the format has no such option of its own.
        UnsupportedError: raw=True of a format that has columns, or a schema= of a kind that the format does
            not read by.
    """
    info = fmt.info
    options_from(fmt.read_options, options.format_options, info.name)
    if options.raw and not gives_raw_records(fmt):
        raise UnsupportedError(
            f"raw=True gives the framed records of a file, and {info.name} has columns instead",
            file=source.path,
            hint="open it without raw=True",
        )
    has_schema = isinstance(options.schema, pa.Schema)
    if not (has_schema or options.schema is None or info.takes_descriptions):
        kind = type(options.schema).__name__
        raise UnsupportedError(
            f"schema= of {info.name} can only be a pyarrow.Schema, not {kind}", file=source.path
        )
    reader = fmt.open(source, options)
    if options.raw and reader.schema.names[:1] != ["record"]:
        reader.close()
        raise UnsupportedError(f"{info.name} gives no raw records", file=source.path)
    if has_schema:
        asked: Any = options.schema
        if (reader.schema.names, reader.schema.types) != (asked.names, asked.types):
            reader.close()
            message = f"{info.name} reads its own columns, and takes no schema="
            raise UnsupportedError(message, file=source.path)
    return reader
