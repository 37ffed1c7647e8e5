"""The contract between a container format and everything above it.

A shard is a run of chunks; a chunk decodes, alone, to one Arrow record batch. A format knows how
to cut a shard into chunks, how to decode some records of one chunk, and how to write batches.
Every verb is written once, above all formats.
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
    """What decodes alone. Records count from 0 within the shard; bytes are file offsets.

    `data` holds what the reader already has in hand because finding the chunk meant reading it; it
    saves reading the bytes twice.
    """

    first_record: int
    num_records: int
    start_byte: int
    end_byte: int
    data: Any = None


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """Bytes of a file that were passed over, and why.

    `num_records` is None where nobody can know how many records the region held.
    """

    file: str
    start_byte: int
    end_byte: int
    num_records: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class FormatInfo:
    """What a format is called, how its files are usually named, and what it can do."""

    name: str
    extensions: tuple[str, ...]
    can_write: bool = True
    can_take: bool = True
    can_append: bool = False
    can_map: bool = False
    """A plain file is read through a memory map where `mmap=True` asks for it."""
    compressions: tuple[str, ...] = ()
    """What its files may be compressed with, inside or as a whole."""
    can_overlay: bool = True
    """Its records have a fixed order, so fields can be kept beside them."""
    holds_images: bool = False
    """Images have a place of their own in it: columns of them are found when data is converted."""
    takes_views: bool = False
    """Its writers take batches of `lending.lent_schema` as well, and write the same bytes: byte strings
    need not be copied on their way from one file to another."""
    lossless: bool = True
    """A written batch reads back with the same Arrow types."""
    loses_dtypes: bool = False
    """What a field says of the dtype of its values (`types.DTYPE_KEY`) does not come back."""
    has_checksums: bool = False
    has_raw_records: bool = False
    """raw=True gives its records, as it does those of every `Framed` format: see `gives_raw_records`."""
    takes_descriptions: bool = False
    """schema= may also be {name: type or feature}, or a message class; see its own page."""
    whole_dictionaries: tuple[str, ...] = ()
    """Columns whose dictionaries have all names of the file in every batch; ("*",) for all columns."""
    is_folder: bool = False
    """A shard is a folder of many files, not a file: see `penstock.storage.folder`."""
    may_be_empty: bool = False
    """A file of no bytes is one of no records: there is neither a header nor a mark at the end."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader is asked to do; the keywords of `penstock.open`, checked."""

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
    """Called with every region that is passed over. Must be safe to call from several threads."""
    beside: Callable[[str], Source | None] = lambda name: None
    """Opens a file of the shard's folder by its bare name; None where there is none."""
    settled: bool = False
    """Whether `schema` is what the first files of the dataset hold, and not the caller's: then a value that it
    cannot hold exactly is an error."""
    complete: bool = False
    """Whether a record that has fields besides those of the schema is a SchemaError where all of them
    are read, for who would lose them."""
    format_options: dict[str, Any] = field(default_factory=dict)

    @property
    def verifies(self) -> bool:
        """Whether all checksums that the file stores are verified."""
        return self.checksums in ("all", "index")


class Reader(Protocol):
    """One open shard. All methods may be called from several threads at once."""

    schema: pa.Schema

    @property
    def num_records(self) -> int:
        """How many records the shard has; builds the index where that is needed to know."""
        ...

    def chunks(self) -> Iterator[Chunk]:
        """The chunks in order. The iterator itself is used by one thread at a time."""
        ...

    def decode(self, chunk: Chunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        """Some records of one chunk, in the order asked for. A fault in a record that was not asked for
        is none: this is how the good records around a bad one are had."""
        ...

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk, np.ndarray]]:
        """Cover these records of the shard by chunks: (chunk, record numbers within it).

        The batches that `decode` makes of the pairs, put one after another, hold the records in
        the order asked for.
        """
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


@dataclass(frozen=True, slots=True)
class Summary:
    """What a writer made: final paths, and totals over them. Bytes are those on disk."""

    paths: tuple[str, ...]
    num_records: int
    num_bytes: int
    notes: tuple[str, ...] = ()
    """What the format could not hold exactly and was changed, such as float64 that was rounded to float32."""


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
        """Finish the shard's bytes. The sink is committed by the caller afterwards."""
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
    """A Format that cannot hold all Arrow types: they are kept in the sidecar of a file that penstock writes."""

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        """What records of this schema read back as, given that they were written with these options: what the
        format rounds is not undone. None where that cannot be said."""
        ...


@runtime_checkable
class NumbersClasses(Protocol):
    """A Format that holds class labels as their numbers: the sidecars of files that penstock writes list the names."""

    class_numbers: pa.DataType
    """The type that the numbers are read as where the names are not known."""


@runtime_checkable
class NumberingClasses(Protocol):
    """A Writer of such a format."""

    @property
    def dictionaries(self) -> Mapping[str, pa.Array | None]:
        """The dictionary of each column of class labels; None of one of which it has met no values."""
        ...


def bare(reader: Reader) -> Reader:
    """The reader of a file itself, without the overlays that it may be joined with. Ask that one what it
    can do: from Python 3.12 on `isinstance` does not see what a reader hands on to another."""
    return getattr(reader, "bare", reader)


@runtime_checkable
class PartlyReadable(Protocol):
    """A Reader that gives the good records of a chunk that has bad ones."""

    def readable(self, chunk: Chunk) -> np.ndarray:
        """Which records of a chunk can be read, int64, rising."""
        ...

    def places(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """Where the readable records of a chunk begin, and where they end."""
        ...


@runtime_checkable
class Dividing(Protocol):
    """A Reader of records that may be much larger in columns than in the file."""

    def parts(self, chunk: Chunk, columns: Projection) -> Iterator[Chunk]:
        """The same records in chunks that are small enough to be decoded as they are. May read them."""
        ...


def parts_of(reader: Reader, chunk: Chunk) -> Iterable[Chunk]:
    """A chunk, or the parts of one that is too much for one batch."""
    own = bare(reader)
    return own.parts(chunk, None) if isinstance(own, Dividing) else (chunk,)


@runtime_checkable
class Alike(Protocol):
    """A Reader that can say how to write a file of the same kind."""

    def options_alike(self) -> Any:
        """Options for the format's writer: compressed and laid out as this file is."""
        ...


class Lending(Reader, Protocol):
    """A Reader that need not copy byte strings out of what it has read. See `lends`."""

    def lent(self, chunk: Chunk, records: Selection, columns: Projection) -> pa.RecordBatch:
        """What `decode` gives, with binary_view in place of binary, also under images, where that saves
        a copy; images whose files have to be made perhaps in parts (`lending.in_parts`)."""
        ...


class AtOnce(Reader, Protocol):
    """A Reader that may give records by their numbers in one step. See `takes_at_once`."""

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        """Records of the shard in the order asked for, or None: then `pick` and `decode` give them, or say
        what is wrong with them."""
        ...


@runtime_checkable
class Threaded(Protocol):
    """A Reader that finds its chunks in another way for each number of threads."""

    def found_by(self, threads: int) -> Iterator[Chunk | Callable[[], Chunk | None]]:
        """The chunks of `chunks`, for a scan by so many threads: each as it is, or a call that finds it, or
        finds none. A call may wait for those before it, so they are begun in order. One thread decodes each
        chunk before it asks for the next."""
        ...


def lends(reader: Reader) -> TypeGuard[Lending]:
    """Whether a reader need not copy byte strings. Asked for each batch, so quicker than `isinstance`.
    One that wraps another does not lend because that one does."""
    return hasattr(type(reader), "lent")


def takes_at_once(reader: Reader) -> TypeGuard[AtOnce]:
    """Whether to ask a reader for records in one step first. As for `lends`, another's ability is not its own."""
    return hasattr(type(reader), "at_once")


@runtime_checkable
class Compressed(Protocol):
    """A Reader whose file says how it is compressed."""

    @property
    def compression(self) -> str:
        """The names of the codecs."""
        ...


@runtime_checkable
class Comparing(Protocol):
    """A Reader that may compare each record with a checksum as it is read."""

    def compares(self, chunk: Chunk | None) -> bool:
        """Whether it does so for those of a chunk, or for all that it reads."""
        ...


@runtime_checkable
class Verifiable(Protocol):
    """A Reader of a file with checksums of parts that are no chunks."""

    def checks(self) -> Iterable[Callable[[], None]]:
        """A call for each such part, which reads it and raises FormatError where it is damaged. Parts that
        are verified so are not verified again when records are decoded."""
        ...


@runtime_checkable
class Sifting(Protocol):
    """A Reader of a folder that takes some of its files for no data."""

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        """Those, with the reason."""
        ...


@runtime_checkable
class Noting(Protocol):
    """A Writer that may have to change values. Its format's options have `exact`, with which it refuses to."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What it has changed so far: see `losses.Losses`."""
        ...


def notes_of(writers: Iterable[Writer]) -> tuple[str, ...]:
    """What some writers have changed, each change once."""
    found = [note for one in writers if isinstance(one, Noting) for note in one.notes]
    return tuple(dict.fromkeys(found))


@runtime_checkable
class Abortable(Protocol):
    """A Writer with threads of its own, which have to be told when the file is given up."""

    def abort(self) -> None:
        """Stop in the middle: wait for the threads, write nothing more."""
        ...


@dataclass(frozen=True, slots=True)
class NoOptions:
    """A format without options of its own."""
