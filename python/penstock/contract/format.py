"""The contract between a container format and everything above it.

A shard is a sequence of chunks; each chunk decodes independently into one Arrow record batch. A format cuts a shard
into chunks, decodes some records of one chunk, and writes batches. Every verb is implemented once, on top of all
formats.

`Format`, `Reader` and `Writer` are base classes. What most formats cannot do has a default that is right for them, so
verbs call and never ask.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection, Selection
from penstock.contract.options import options_from
from penstock.errors import UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Sink, Source
from penstock.storage.skipped import SkippedFile

T = TypeVar("T")

Part = _core.Buffer | memoryview
"""Some bytes of a file."""


@dataclass(frozen=True, slots=True)
class Chunk(Generic[T]):
    """A part of a shard that decodes independently. Records count from 0 within the shard; bytes are file offsets.

    `data` is what the reader that made the chunk already knows of it, such as the bytes it loaded to find the chunk.
    """

    first_record: int
    num_records: int
    start_byte: int
    end_byte: int
    data: T = None  # type: ignore[assignment]  # for readers that keep nothing


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
    """raw=True returns its raw records."""
    takes_descriptions: bool = False
    """schema= may also be {name: type or feature}, or a message class; see the format's page."""
    whole_dictionaries: tuple[str, ...] = ()
    """Columns whose dictionary in every batch holds all names of the file; ("*",) for all columns."""
    holds_examples: bool = False
    """Its payloads may be tf.train.Examples, and are if records with columns are written to it."""
    added_columns: tuple[str, ...] = ()
    """Columns that the reader adds to the stored ones, such as the name of the file. They are not written."""
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
    beside: Callable[[str], Source | None] = lambda name: None
    """Opens a file in the shard's folder by its bare name; None if there is none."""
    settled: bool = False
    """Whether `schema` was inferred from the first files of the dataset and not given by the caller. A value that it
    cannot hold exactly is then an error."""
    complete: bool = False
    """Whether a record with fields outside the schema is a SchemaError when all fields are read: for callers that would
    lose them."""
    format_options: dict[str, Any] = field(default_factory=dict)
    """The format's own options, by name."""
    own: Any = None
    """The same as the format's dataclass, after `open_shard` has checked them."""

    @property
    def verifies(self) -> bool:
        """Whether all checksums stored in the file are verified."""
        return self.checksums in ("all", "index")


class Delivered(NamedTuple):
    """The records of a chunk that could be read."""

    batch: pa.RecordBatch
    records: Selection
    """The number in the chunk of each record of the batch; None for all of the chunk in order. Below 0: unknown."""
    skipped: Sequence[SkippedRegion] = ()
    """What was skipped in the chunk, in file order."""


class Readable(NamedTuple):
    """The records of a damaged chunk that have a place in the file, whether or not they decode."""

    records: np.ndarray
    """Their numbers in the chunk, int64, ascending."""
    starts: np.ndarray
    """Offset of each in the file, or in its decompressed stream."""
    ends: np.ndarray
    skipped: Sequence[SkippedRegion] = ()
    """The rest of the chunk."""


Stretch = Chunk[Any] | SkippedRegion
"""A stretch of a shard: a chunk, or a region that is skipped."""


def only_chunks(stretches: Iterable[Stretch]) -> Iterator[Chunk[Any]]:
    """The chunks of a shard, for callers that do not report what is skipped."""
    return (one for one in stretches if isinstance(one, Chunk))


class Reader(ABC):
    """One open shard. All methods may be called from several threads at once."""

    schema: pa.Schema

    @property
    @abstractmethod
    def num_records(self) -> int:
        """Number of records in the shard; builds the index if needed."""
        ...

    @abstractmethod
    def chunks(self) -> Iterator[Chunk[Any]]:
        """The chunks in order. Only one thread at a time may use the iterator."""
        ...

    @abstractmethod
    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Some records of one chunk, in the requested order. Faults in records that were not requested are ignored, so
        the good records around a bad one can be read."""
        ...

    @abstractmethod
    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        """Cover these records of the shard by chunks: (chunk, record numbers within it; None for all of it).

        The batches that `decode` returns for the pairs, concatenated, hold the records in the requested order.
        """
        ...

    @abstractmethod
    def close(self) -> None:
        """Close the files."""
        ...

    # -- what some readers do better than this ----------------------------------------------------

    @property
    def compression(self) -> str | None:
        """The names of the codecs inside the file; None if it records none."""
        return None

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        """Files of a folder that are not data, with the reason."""
        return ()

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        """The chunks for a scan with `threads` threads, and what is skipped between them, in file order. A call that
        comes in their place finds the next ones. It may wait for earlier calls, so calls are started in order. One
        thread decodes each chunk before it asks for the next."""
        del threads
        return self.chunks()

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        """The records of a chunk in chunks whose batches are not too large. May read them."""
        del columns
        yield chunk

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        """As `decode`, and what was skipped in the chunk if damage is skipped and all its records are requested."""
        return Delivered(self.decode(chunk, records, columns), records)

    def readable(self, chunk: Chunk[Any]) -> Readable | None:
        """The places of the records in a chunk; None if only decoding it tells which can be read."""
        del chunk
        return None

    def lent(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        """As `decode`, but with binary_view instead of binary where that saves a copy, also inside images. Images whose
        files have to be built may come in parts (`lending.in_parts`)."""
        return self.decode(chunk, records, columns)

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        """Records of the shard in the requested order, read in one step. None if that is no faster or something is
        wrong: then `pick` and `decode` return them, or raise the fault."""
        del records, columns
        return None

    def compares(self, chunk: Chunk[Any] | None) -> bool:
        """Whether each record of a chunk, or each that is read at all, is compared with a checksum."""
        del chunk
        return False

    def checks(self) -> Iterable[Callable[[], None]]:
        """A call for each part of the file that has a checksum and is not a chunk. The call reads the part and raises
        FormatError if it is damaged. Parts verified this way are not verified again when records are decoded."""
        return ()

    def options_alike(self) -> Any:
        """Options for the format's writer that reproduce this file's compression and layout; None for the usual
        ones."""
        return None


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a writer: final paths, and totals over them. Bytes are those on disk."""

    paths: tuple[str, ...]
    num_records: int
    num_bytes: int
    notes: tuple[str, ...] = ()
    """Values the format could not hold exactly and changed, such as float64 rounded to float32."""


class Writer(ABC):
    """Writes one shard. Used by one thread."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Bytes of output so far, for cutting shards by size."""
        ...

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append the records of a batch."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Finish the shard's bytes. The caller commits the sink afterwards."""
        ...

    def abort(self) -> None:
        """Stop early: wait for the writer's threads, write nothing more."""

    @property
    def notes(self) -> tuple[str, ...]:
        """How values were changed that the format cannot hold exactly (see `losses.Losses`). A format whose option
        `exact` is set raises instead."""
        return ()

    @property
    def dictionaries(self) -> Mapping[str, pa.Array | None]:
        """The class names of each column of class labels that the format stores as numbers; None for a column without
        values so far."""
        return {}


def notes_of(writers: Iterable[Writer]) -> tuple[str, ...]:
    """The changes made by some writers, each listed once."""
    return tuple(dict.fromkeys(note for one in writers for note in one.notes))


@dataclass(frozen=True, slots=True)
class NoOptions:
    """For formats that have no options."""


class Format(ABC):
    """A container format: one value per format, registered in one line."""

    info: ClassVar[FormatInfo]
    read_options: ClassVar[type] = NoOptions
    """The dataclass of its options for `penstock.open`."""
    class_numbers: ClassVar[pa.DataType | None] = None
    """For a format that stores class labels as numbers: the type of the numbers if the names are not known. The sidecars
    of files that penstock writes list the names."""

    @property
    def write_options(self) -> type:
        """The dataclass of its options for `penstock.write`."""
        return NoOptions

    def own_options(self, options: Options) -> Any:
        """The format's own options, a `read_options`.

        Raises:
            TypeError: there is no such option, or a value does not have the option's type.
        """
        if options.own is not None:
            return options.own
        return options_from(self.read_options, options.format_options, self.info.name)

    @abstractmethod
    def sniff(self, head: bytes, size: int) -> bool:
        """Whether a file of `size` bytes that starts with `head` is of this format."""
        ...

    @abstractmethod
    def open(self, source: Source, options: Options) -> Reader:
        """Open a shard."""
        ...

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        """Begin a shard of records of this schema.

        Raises:
            SchemaError: the format cannot hold such columns.
        """
        del schema, options, threads
        raise UnsupportedError(f"{self.info.name} cannot be written", file=sink.path)

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        """For a format that cannot hold all Arrow types, whose sidecars store them: the schema as which records of this
        schema read back after they were written with these options. Values that the format rounds stay rounded. None if
        there is nothing to store, or it cannot be determined."""
        del schema, options
        return None
