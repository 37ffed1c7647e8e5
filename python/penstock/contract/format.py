"""The contract between a container format and everything above it.

A shard is a sequence of chunks; each chunk decodes independently into one Arrow record batch. A format cuts a shard
into chunks, decodes some records of one chunk, and writes batches. Every verb is implemented once, on top of all
formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection, Selection
from penstock.limits import Limits
from penstock.storage.base import Sink, Source
from penstock.storage.skipped import SkippedFile

if TYPE_CHECKING:
    pass


Part = _core.Buffer | memoryview
"""Some bytes of a file."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a shard that decodes independently. Records count from 0 within the shard; bytes are file offsets.

    `data` holds what the reader already loaded to find the chunk, so that the bytes are not read twice.
    """

    first_record: int
    num_records: int
    start_byte: int
    end_byte: int
    data: Any = None


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """A skipped range of a file's bytes, and the reason.

    `num_records` is None if the number of records in the region is unknown.
    """

    file: str
    start_byte: int
    end_byte: int
    num_records: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class FormatInfo:
    """A format's name, its usual file extensions, and its abilities."""

    name: str
    extensions: tuple[str, ...]
    can_write: bool = True
    can_take: bool = True
    can_append: bool = False
    can_map: bool = False
    """A plain file is read through a memory map if `mmap=True`."""
    compressions: tuple[str, ...] = ()
    """The compressions of its files, internal or of the whole file."""
    can_overlay: bool = True
    """Its records have a fixed order, so an overlay can add fields to them."""
    holds_images: bool = False
    """It has its own representation of images: image columns are detected when data is converted."""
    takes_views: bool = False
    """Its writers also accept batches of `lending.lent_schema`, and write the same bytes: byte strings need not be
    copied from one file to another."""
    lossless: bool = True
    """A written batch reads back with the same Arrow types."""
    loses_dtypes: bool = False
    """The dtype recorded in a field's metadata (`types.DTYPE_KEY`) does not read back."""
    has_checksums: bool = False
    has_raw_records: bool = False
    """raw=True returns its raw records, as for every `Framed` format: see `gives_raw_records`."""
    takes_descriptions: bool = False
    """schema= may also be {name: type or feature}, or a message class; see the format's page."""
    whole_dictionaries: tuple[str, ...] = ()
    """Columns whose dictionary in every batch holds all names of the file; ("*",) for all columns."""
    is_folder: bool = False
    """A shard is a folder of many files, not a single file: see `penstock.storage.folder`."""
    may_be_empty: bool = False
    """An empty file is valid and has no records: the format has no header or end marker."""


@dataclass(frozen=True, slots=True)
class Options:
    """The checked keywords of `penstock.open`: what a reader is asked to do."""

    schema: Any = None
    """pyarrow schema, {name: feature}, protobuf message class or descriptor; None infers."""
    raw: bool = False
    checksums: str = "all"
    damage: str = "error"
    index: str = "auto"
    mmap: bool = False
    limits: Limits = field(default_factory=Limits)
    dialect: str = "protobuf"
    skipped: Callable[[SkippedRegion], None] = lambda region: None
    """Called with every skipped region. Must be safe to call from several threads."""
    beside: Callable[[str], Source | None] = lambda name: None
    """Opens a file in the shard's folder by its bare name; None if there is none."""
    settled: bool = False
    """Whether `schema` was inferred from the first files of the dataset and not given by the caller. A value that it
    cannot hold exactly is then an error."""
    complete: bool = False
    """Whether a record with fields outside the schema is a SchemaError when all fields are read: for callers that would
    lose them."""
    format_options: dict[str, Any] = field(default_factory=dict)

    @property
    def verifies(self) -> bool:
        """Whether all checksums stored in the file are verified."""
        return self.checksums in ("all", "index")


class Reader(Protocol):
    """One open shard. All methods may be called from several threads at once."""

    schema: pa.Schema

    @property
    def num_records(self) -> int:
        """Number of records in the shard; builds the index if needed."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order. Only one thread at a time may use the iterator."""
        ...

    def decode(self, chunk: Chunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        """Some records of one chunk, in the requested order. Faults in records that were not requested are ignored, so
        the good records around a bad one can be read."""
        ...

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk, np.ndarray]]:
        """Cover these records of the shard by chunks: (chunk, record numbers within it).

        The batches that `decode` returns for the pairs, concatenated, hold the records in the requested order.
        """
        ...

    def close(self) -> None:
        """Close the files."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a writer: final paths, and totals over them. Bytes are those on disk."""

    paths: tuple[str, ...]
    num_records: int
    num_bytes: int
    notes: tuple[str, ...] = ()
    """Values the format could not hold exactly and changed, such as float64 rounded to float32."""


class Writer(Protocol):
    """Writes one shard. Used by one thread."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the records of a batch."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes of output so far, for cutting shards by size."""
        ...

    def close(self) -> None:
        """Finish the shard's bytes. The caller commits the sink afterwards."""
        ...


class Format(Protocol):
    """A container format: one value per format, registered in one line."""

    info: FormatInfo

    @property
    def read_options(self) -> type:
        """The dataclass of its options for `penstock.open`."""
        ...

    @property
    def write_options(self) -> type:
        """The dataclass of its options for `penstock.write`."""
        ...

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether a file of `size` bytes that starts with `head` is of this format."""
        ...

    def open(self, source: Source, options: Options) -> Reader: ...

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer: ...


# -- what some can do besides ---------------------------------------------------------------------


@runtime_checkable
class KeepsTypes(Protocol):
    """A Format that cannot hold all Arrow types: penstock stores them in the sidecars of the files that it writes."""

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        """The schema as which records of this schema read back after they were written with these options. Values that
        the format rounds stay rounded. None if it cannot be determined."""
        ...


@runtime_checkable
class NumbersClasses(Protocol):
    """A Format that stores class labels as numbers: the sidecars of files that penstock writes list the names."""

    class_numbers: pa.DataType
    """The type of the numbers if the names are not known."""


@runtime_checkable
class NumberingClasses(Protocol):
    """A Writer of such a format."""

    @property
    def dictionaries(self) -> Mapping[str, pa.Array | None]:
        """The dictionary of each column of class labels; None for a column without values so far."""
        ...


def bare(reader: Reader) -> Reader:
    """The reader of the file itself, without any joined overlays. Check the abilities of this one: since Python 3.12,
    `isinstance` does not see methods that a reader delegates to another."""
    return getattr(reader, "bare", reader)


@runtime_checkable
class PartlyReadable(Protocol):
    """A Reader that returns the good records of a chunk that also has bad ones."""

    def readable(self, chunk: Chunk) -> np.ndarray:
        """Which records of a chunk can be read, int64, ascending."""
        ...

    def places(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Start and end offsets of the readable records of a chunk."""
        ...


@runtime_checkable
class Dividing(Protocol):
    """A Reader of records that may be much larger in columns than in the file."""

    def parts(self, chunk: Chunk, columns: Projection) -> Iterator[Chunk]:
        """The same records in chunks small enough to decode whole. May read them."""
        ...


def parts_of(reader: Reader, chunk: Chunk) -> Iterable[Chunk]:
    """The chunk itself, or its parts if it is too large for one batch."""
    own = bare(reader)
    return own.parts(chunk, None) if isinstance(own, Dividing) else (chunk,)


@runtime_checkable
class Alike(Protocol):
    """A Reader that can say how to write a file of the same kind."""

    def options_alike(self) -> Any:
        """Options for the format's writer that reproduce this file's compression and layout."""
        ...


class Lending(Reader, Protocol):
    """A Reader that can return views of byte strings instead of copies. See `lends`."""

    def lent(self, chunk: Chunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        """As `decode`, but with binary_view instead of binary where that saves a copy, also inside images. Images whose
        files have to be built may come in parts (`lending.in_parts`)."""
        ...


class AtOnce(Reader, Protocol):
    """A Reader that may return records by number in one step. See `takes_at_once`."""

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        """Records of the shard in the requested order, or None: then `pick` and `decode` return them, or raise what is
        wrong with them."""
        ...


@runtime_checkable
class Threaded(Protocol):
    """A Reader that finds its chunks differently for each number of threads."""

    def found_by(self, threads: int) -> Iterator[Chunk | Callable[[], Chunk | None]]:
        """The chunks of `chunks`, for a scan with `threads` threads: each as a chunk, or as a call that finds it or
        returns None. A call may wait for earlier ones, so they are started in order. One thread decodes each chunk
        before it asks for the next."""
        ...


def lends(reader: Reader) -> TypeGuard[Lending]:
    """Whether a reader can return views of byte strings. Called for each batch, so faster than `isinstance`. A reader
    that wraps another does not inherit this ability."""
    return hasattr(type(reader), "lent")


def takes_at_once(reader: Reader) -> TypeGuard[AtOnce]:
    """Whether to try reading records in one step first. As with `lends`, a wrapper does not inherit this ability."""
    return hasattr(type(reader), "at_once")


@runtime_checkable
class Compressed(Protocol):
    """A Reader whose file records how it is compressed."""

    @property
    def compression(self) -> str:
        """The names of the codecs."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A Reader that may compare each record with a checksum as it is read."""

    def compares(self, chunk: Chunk | None) -> bool:
        """Whether it does so for the records of a chunk, or for all that it reads."""
        ...


@runtime_checkable
class Verifiable(Protocol):
    """A Reader of a file with checksums of parts that are not chunks."""

    def checks(self) -> Iterable[Callable[[], None]]:
        """A call for each such part, which reads it and raises FormatError if it is damaged. Parts verified this way
        are not verified again when records are decoded."""
        ...


@runtime_checkable
class Sifting(Protocol):
    """A Reader of a folder that ignores files that are not data."""

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        """The ignored files, with the reason."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A Writer that may have to change values, unless its format's option `exact` is set: then it raises."""

    @property
    def notes(self) -> tuple[str, ...]:
        """The changes so far: see `losses.Losses`."""
        ...


def notes_of(writers: Iterable[Writer]) -> tuple[str, ...]:
    """The changes made by some writers, each listed once."""
    found = [note for one in writers if isinstance(one, Noting) for note in one.notes]
    return tuple(dict.fromkeys(found))


@runtime_checkable
class Abortable(Protocol):
    """A Writer with its own threads, which must be stopped if the file is abandoned."""

    def abort(self) -> None:
        """Stop early: wait for the threads, write nothing more."""
        ...


@dataclass(frozen=True, slots=True)
class NoOptions:
    """For formats that have no options."""
