"""The contract between a container format and everything above it.

A shard is a sequence of chunks, and each chunk decodes independently to one Arrow record batch. A format splits a
shard into chunks, decodes some records of a chunk, and writes batches. Every verb is implemented once, for all formats.
The methods of the base classes `Format`, `Reader` and `Writer` that a format need not implement have correct defaults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.columns.selection import Projection, Selection
from penstock.conditions import Bound
from penstock.contract.options import options_from
from penstock.contract.regions import Region, rows_at, several
from penstock.errors import RecordIndexError, UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Sink, Source
from penstock.storage.skipped import SkippedFile

T = TypeVar("T")

Part = _core.Buffer | memoryview
"""Some bytes of a file."""


@dataclass(frozen=True, slots=True)
class Chunk(Generic[T]):
    """A part of a shard that decodes independently. Records count from 0 in the shard, and bytes are file offsets.
    `data` holds whatever the reader already knows, such as the bytes that it read to find the chunk."""

    first_record: int
    num_records: int
    start_byte: int
    end_byte: int
    data: T = None  # type: ignore[assignment]  # None if the reader stores nothing


@dataclass(frozen=True, slots=True)
class SkippedRegion:
    """A skipped range of a file's bytes, and the reason. `num_records` is None if unknown."""

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
    """Records can be added to a file, by `Format.extend` or as to a FramedFormat."""
    can_map: bool = False
    """A plain file is read through a memory map if `mmap=True`."""
    compressions: tuple[str, ...] = ()
    """The compressions that penstock reads: inside a file, or of the file as a whole."""
    can_overlay: bool = True
    """Its records have a fixed order, so an overlay can add fields to them."""
    holds_images: bool = False
    """It stores images in its own way, so image columns are detected when data is converted."""
    holds_structs: bool = True
    """It stores structs as such. For others, `convert` writes Hugging Face's structs of an image as images."""
    shows_codecs: bool = False
    """Whether the name of a column's field shows the codec of its images, which is then worth looking for."""
    picture_files: tuple[str, ...] = ()
    """In a folder of images, its column of images and the column of their files' names."""
    reads_images: bool = False
    """Its writers read the images that they store, so `Format.check_images` is called if damage is skipped."""
    takes_views: bool = False
    """Its writers also accept batches of `lending.lent_schema`, to avoid copies, and write the same bytes."""
    lossless: bool = True
    """A written batch reads back with the same Arrow types."""
    loses_dtypes: bool = False
    """The dtype in a field's metadata (`types.DTYPE_KEY`) does not read back."""
    holds_decimals: bool = True
    """It stores decimals. For others, they are written as int64 or float64 (`columns.decimals`)."""
    holds_text: bool = True
    """It stores text and bytes in different ways."""
    has_checksums: bool = False
    """Each read of a record compares its bytes with checksums in the file."""
    checksums: str = ""
    """What the checksums in a file are, such as "CRC-32 of each record"; `info` and `penstock formats` show it."""
    keeps_positions: bool = False
    """The file does not store the positions of its records, so an index does."""
    loses_one: bool = False
    """Damage inside a record leaves all others readable, as in each FramedFormat."""
    has_raw_records: bool = False
    """raw=True returns its raw records."""
    takes_descriptions: bool = False
    """schema= may also be {name: type or feature}, or a message class; see the format's page."""
    whole_dictionaries: tuple[str, ...] = ()
    """Dictionary columns that have the same dictionary, with all names of the file, in every batch; ("*",) for all
    columns."""
    holds_examples: bool = False
    """Its payloads may be tf.train.Examples, as which columns are written."""
    added_columns: tuple[str, ...] = ()
    """Columns that the reader adds, such as the name of the file, and that are not written."""
    is_folder: bool = False
    """A shard is a folder of many files: see `penstock.storage.folder`."""
    only_appends: bool = False
    """Its writers never patch or repeat written bytes, so an object store can send them while they are written."""
    may_be_empty: bool = False
    """A file of zero bytes is valid and has no records."""


class Retyped(NamedTuple):
    """A schema that was found in the files, before `types=` changed the types of some fields."""

    names: frozenset[str]
    """The fields with types of the caller."""
    own: pa.Schema
    """The schema that was found."""
    origin: Any
    """Where the types of the other fields come from, as in `Files.types`."""


@dataclass(frozen=True, slots=True)
class Options:
    """The checked keywords of `penstock.open`, which configure a reader."""

    schema: Any = None
    """A pyarrow schema, {name: feature}, or a protobuf message class or descriptor. None infers the schema."""
    raw: bool = False
    checksums: str = "all"
    damage: str = "error"
    index: str = "auto"
    mmap: bool = False
    limits: Limits = field(default_factory=Limits)
    dialect: str = "protobuf"
    beside: Callable[[str], Source | None] = lambda name: None
    """Opens a file in the shard's folder, given its name without a path. Returns None if there is no such file."""
    stores_index: bool = True
    """Whether the reader may store an index that it had to make."""
    settled: frozenset[str] = frozenset()
    """The fields of `schema` whose types were found in other files: a value that they cannot hold exactly is an error."""
    retyped: Retyped | None = None
    named: frozenset[str] = frozenset()
    """The fields whose types `types=` gives, so that their values need no common type when types are inferred."""
    """If `schema` was found, and `types=` gave some of its types."""
    complete: bool = False
    """Whether a record with other fields raises SchemaError, for callers that would lose these fields."""
    as_table: bool = False
    """Whether a file that lists shards is read as a table: its format was named in the call."""
    origin: tuple[str, int] | None = None
    """The first file of the dataset, and how many there are: there is one warning for each dataset and field."""
    format_options: dict[str, Any] = field(default_factory=dict)
    """The format's own options, by name."""
    own: Any = None
    """The same options as the format's dataclass. `open_shard` sets it after checking them."""

    @property
    def verifies(self) -> bool:
        return self.checksums in ("all", "index")


class Delivered(NamedTuple):
    """The records of a chunk that could be read."""

    batch: pa.RecordBatch
    records: Selection
    """The number in the chunk of each record (below 0 if unknown). None if the batch is the whole chunk in order."""
    skipped: Sequence[SkippedRegion] = ()
    """The skipped regions of the chunk, in file order."""


class Readable(NamedTuple):
    """The records of a damaged chunk that have a position in the file, even if they cannot be decoded."""

    records: np.ndarray
    """Their numbers in the chunk, int64, ascending."""
    starts: np.ndarray
    """Their offsets in the file, or in its decompressed stream."""
    ends: np.ndarray
    skipped: Sequence[SkippedRegion] = ()
    """The other regions of the chunk."""


Stretch = Chunk[Any] | SkippedRegion
"""A part of a shard."""


def only_chunks(stretches: Iterable[Stretch]) -> Iterator[Chunk[Any]]:
    """The chunks of a shard, for callers that do not report skipped regions."""
    return (one for one in stretches if isinstance(one, Chunk))


class Reader(ABC):
    """One open shard. Several threads may call its methods at the same time."""

    schema: pa.Schema
    stored_names: Sequence[str] = ()
    """The columns that the file itself lists, among which `schema` may be a selection. Empty if it lists none."""

    @property
    @abstractmethod
    def num_records(self) -> int:
        """The number of records in the shard. Builds the index if needed."""
        ...

    @abstractmethod
    def chunks(self) -> Iterator[Chunk[Any]]:
        """The chunks in order. Only one thread at a time may use the iterator."""
        ...

    @abstractmethod
    def decode(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Decode some records of a chunk, in the requested order. Faults in other records are ignored, so that the good
        records around a bad one can be read."""
        ...

    @abstractmethod
    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[Any], Selection]]:
        """Split a request for records of the shard by chunk. Yields (chunk, record numbers in the chunk, or None for
        all its records). `decode` returns a batch for each pair; joined, these batches hold the records in the
        requested order."""
        ...

    @abstractmethod
    def close(self) -> None:
        """Close the files."""
        ...

    # -- defaults that some readers improve ------------------------------------------------------

    @property
    def lost_in_a_rewrite(self) -> str:
        """What a new file of this format with the same records lacks, as a sentence without a full stop; "" for most."""
        return ""

    @property
    def compression(self) -> str | None:
        """The names of the codecs in the file, as one str such as "zlib" or "zstd, snappy"; None if it records none."""
        return None

    @property
    def lacks_checksums(self) -> bool:
        """Whether the file was written without the checksums of its format, where these are optional."""
        return False

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        """Files of a folder that are not data, with reasons."""
        return ()

    @property
    def notes(self) -> Sequence[str]:
        """What `info` says about the file besides its facts, such as that an archive has no end."""
        return ()

    @property
    def positions(self) -> np.ndarray | None:
        """The start of each record in the file, and the end of the last, int64[num_records + 1], for `verify` and
        `layout`. None if records have no bytes of their own. `PositionedReader` keeps them in an index."""
        return None

    @property
    def uncounted(self) -> Sequence[SkippedRegion]:
        """The regions that were skipped when the records were counted, because they hold no readable records. They
        have no record numbers, so only a scan would report them otherwise."""
        return ()

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        """Yield the chunks and skipped regions for a scan with `threads` threads, in file order. A callable may be
        yielded instead: it returns the next chunks and regions. It may wait for earlier callables, so start them in
        order. A single thread decodes each chunk before it requests the next one."""
        del threads
        return self.chunks()

    def found_for(
        self, columns: Projection, threads: int
    ) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        """Like `found_by`, for a scan of these columns. Bytes that only other columns need may be left out of the chunks,
        so these are decoded to no other columns."""
        del columns
        return self.found_by(threads)

    def spans(self) -> Iterator[Chunk[Any]]:
        """Divide the shard where a plan for several machines may cut it, in order. `found_in` reads any consecutive spans
        without the bytes of the others, if the file's state is the same. By default, these are the chunks. A file that
        is only read from front to back is one span."""
        return self.chunks()

    def found_in(self, part: Chunk[Any]) -> Iterator[Chunk[Any]]:
        """Yield the chunks of consecutive spans, which another reader of the same file found. `part` has their records,
        and their bytes, which are 0 to 0 if unknown. The first and last chunk may have other records, too."""
        end = part.first_record + part.num_records
        for chunk in self.chunks():
            if chunk.first_record >= end:
                return
            if chunk.first_record + chunk.num_records > part.first_record:
                yield chunk

    def parts(self, chunk: Chunk[Any], columns: Projection) -> Iterator[Chunk[Any]]:
        """Split a chunk into chunks whose batches are not too large. This may read the records."""
        del columns
        yield chunk

    def delivered(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> Delivered:
        """Like `decode`. If damage is skipped and the whole chunk is requested, also report skipped regions."""
        return Delivered(self.decode(chunk, records, columns), records)

    def readable(self, chunk: Chunk[Any]) -> Readable | None:
        """The positions of the records in a chunk; None if only decoding shows which can be read. By default they are
        taken from `positions`."""
        starts = self.positions
        if starts is None:
            return None
        edges = starts[chunk.first_record : chunk.first_record + chunk.num_records + 1]
        return Readable(np.arange(chunk.num_records), edges[:-1], edges[1:])

    def lent(self, chunk: Chunk[Any], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Like `decode`, but with binary_view in place of binary if that saves a copy, also inside images. Images
        stored as pixels may be returned in two parts, head and body (`lending.in_parts`)."""
        return self.decode(chunk, records, columns)

    def reads_ahead(self) -> bool:
        """Whether the reader itself asks for bytes ahead (`Source.want`). It is called before all chunks are decoded in
        order; if it is False and all columns are needed, the file is read ahead from front to back."""
        return False

    def want(self, records: np.ndarray, columns: Projection) -> Sequence[object] | None:
        """Begin to request records that are picked soon; see `Source.want`. By default this does nothing."""
        del records, columns
        return ()

    def at_once(self, records: np.ndarray, columns: Projection) -> pa.RecordBatch | None:
        """Read records of the shard in the requested order in one step. None if that is not faster or there is a fault:
        then use `pick` and `decode`, which return the records or raise the error."""
        del records, columns
        return None

    def record_numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        """The numbers that a chunk's records have in the file, int64, ascending."""
        return np.arange(chunk.first_record, chunk.first_record + chunk.num_records)

    def place(self, record: int) -> tuple[str, int, int] | None:
        """The file of a record, and its first byte and its end there; None if the reader does not know."""
        del record
        return None

    def numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        """The numbers by which `pick` takes a chunk's records, int64, one after another. Below 0: a record that is not in
        the view. They are final once `num_records` was called, before the chunks were requested."""
        return np.arange(chunk.first_record, chunk.first_record + chunk.num_records)

    def may_hold(self, chunk: Chunk[Any], bounds: Sequence[Bound]) -> bool:
        """Whether a chunk may hold a record within these bounds. False if statistics in the file exclude it."""
        del chunk, bounds
        return True

    def compares(self, chunk: Chunk[Any] | None) -> bool:
        """Whether each record of a chunk (for None, of the shard) is compared with a checksum."""
        del chunk
        return False

    def verify_once(self, columns: Projection) -> None:
        """Compare the checksums that cover all values of these columns, each of them once while the file is open. A
        loader calls it before it reads records by number, in any order. Raises FormatError."""
        del columns

    def checks(self) -> Iterable[Callable[[], None]]:
        """Yield a function for each part of the file that has a checksum but is in no chunk. It reads the part, and
        raises FormatError if it is damaged. Decoding does not verify these parts again."""
        return ()

    def options_alike(self) -> Any:
        """Options for the format's writer that reproduce this file's compression and layout; None for the defaults."""
        return None


class Writer(ABC):
    """Writes one shard, in one thread."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """The bytes written to the sink so far, to limit the size of shards; after `close`, all of them."""
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
        """Changes to values that the format cannot hold exactly (see `losses.Losses`). With the format's option
        `exact`, they are errors."""
        return ()

    @property
    def positions(self) -> np.ndarray | None:
        """Like `Reader.positions`, of the written records, for the file's index. None: a reader finds them."""
        return None

    @property
    def dictionaries(self) -> Mapping[str, pa.Array | None]:
        """The class names of each column of class labels that is stored as numbers; None for a column without values so
        far."""
        return {}


def notes_of(writers: Iterable[Writer]) -> tuple[str, ...]:
    """The changes made by the writers, each listed once."""
    return tuple(dict.fromkeys(note for one in writers for note in one.notes))


@dataclass(frozen=True, slots=True)
class NoOptions:
    """The options of formats that have no options."""


class Format(ABC):
    """A container format. Each format has one instance, registered in one line."""

    info: ClassVar[FormatInfo]
    read_options: ClassVar[type] = NoOptions
    """The dataclass of its options for `penstock.open`."""
    split_option: ClassVar[str] = ""
    """The option that chooses one of the splits inside a file, which `split=` of `penstock.open` then sets."""
    class_numbers: ClassVar[pa.DataType | None] = None
    """If class labels are stored as numbers: the column's type if no sidecar lists the class names."""

    write_options: Any = NoOptions
    """The dataclass of its options for `penstock.write`: a class, or a property that imports it when it is needed."""

    def own_options(self, options: Options) -> Any:
        """The format's own options, a `read_options`. Raises TypeError for an unknown option or a value of a wrong
        type."""
        if options.own is not None:
            return options.own
        given = options.format_options
        if given.get("infer_records") == "all" and not any(
            one.name == "infer_records" for one in fields(self.read_options)
        ):
            # All files are looked at, and a file of this format stores its schema.
            given = {name: value for name, value in given.items() if name != "infer_records"}
        return options_from(self.read_options, given, self.info.name)

    @abstractmethod
    def sniff(self, head: bytes, size: int) -> bool:
        """Whether a file of `size` bytes that starts with `head` is of this format."""
        ...

    @abstractmethod
    def open(self, source: Source, options: Options) -> Reader:
        """Open a shard."""
        ...

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        """Begin a shard of records of this schema. Raises SchemaError if the format cannot hold its columns."""
        del schema, options, threads
        raise UnsupportedError(f"{self.info.name} cannot be written", file=sink.path)

    def extend(
        self, source: Source, sink: Sink, schema: pa.Schema, options: Any, threads: int
    ) -> Writer:
        """Begin the bytes to be added after the last byte of the file `source`, for records of its schema. A format
        with a footer adds another one, for all records. Needs `FormatInfo.can_append`. The writer's `positions` are
        offsets in the grown file. `append` has decoded the last record, and adds all bytes or none."""
        del sink, schema, options, threads
        raise UnsupportedError(f"{self.info.name} cannot be appended to", file=source.path)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        """Yield the regions of a file in order and without overlap. One record is divided into its parts. Bytes that
        are in no region are shown as "not described". An error ends the regions, and is shown as damage. By default,
        the regions are the records if the reader has `positions`, and the chunks if not.

        Raises:
            RecordIndexError: the file has no such record; raised after all regions.
        """
        reader = self.open(source, options)
        edges = reader.positions
        if edges is not None:
            yield from rows_at(edges, record)
            check_record(record, len(edges) - 1)
            return
        end = num_records = 0
        for chunk in reader.chunks():
            start, length = max(chunk.start_byte, end), chunk.end_byte - chunk.start_byte
            yield from several(start, length, chunk.first_record, chunk.num_records)
            end, num_records = start + length, chunk.first_record + chunk.num_records
        check_record(record, num_records)

    def check_images(self, images: pa.Array, options: Any) -> None:
        """Raise the FormatError of the first encoded image that a writer with these options cannot store because it is
        damaged. `record` is its place in the array. See `FormatInfo.reads_images`."""
        del images, options

    def advice(self, schema: pa.Schema) -> tuple[str, ...]:
        """Notes for users who convert to this format: what its usual readers do with such columns, and how to avoid it.
        No value is changed."""
        del schema
        return ()

    def kept_schema(self, schema: pa.Schema, options: Any) -> pa.Schema | None:
        """The schema with which records of `schema` read back. It is stored in the sidecar, because the format cannot
        hold all Arrow types. None if nothing needs to be stored, or if that schema is unknown."""
        del schema, options
        return None


def check_record(record: int, num_records: int) -> None:
    """Raise RecordIndexError if a file has no such record. Record 0 is allowed even for an empty file, because it is
    the default."""
    if record >= max(num_records, 1):
        known = "no records" if not num_records else f"records 0 to {num_records - 1}"
        raise RecordIndexError(f"there is no record {record}; the file has {known}", record=record)
