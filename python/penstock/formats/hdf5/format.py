r"""HDF5: datasets of one length as the fields of a table, read by h5py.

Specification: The HDF Group, "HDF5 File Format Specification Version 3.0".

    bytes        what
    8            0x89 "HDF\r\n" 0x1a "\n": the superblock, at 0, or at 512, 1024 ... after a user block
    ...          object headers (what a dataset is), B-trees and heaps (where its parts are), values

A field is a dataset, called by its path ("data/demo_0/actions"). Its first axis counts records. All datasets must have
the same length; if they differ, select some with `datasets=`. Values without axes and attributes become metadata of the
schema and of the fields. No other file is opened (`_file.py`). A chunk of penstock is a run of whole chunks of HDF5,
and a take reads each chunk that it needs once, so no chunk is inflated twice. libhdf5 runs on one thread at a time.
"""

from __future__ import annotations

import base64
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import (
    check_columns,
    check_records,
    conform,
    empty_columns,
    gather,
    projected,
)
from penstock.columns.selection import Projection, Selection
from penstock.columns.stored_schema import schema_of
from penstock.contract.format import (
    Chunk,
    Format,
    FormatInfo,
    Options,
    Reader,
    Writer,
    check_record,
)
from penstock.contract.regions import Region
from penstock.engine.locks import Lock
from penstock.errors import FormatError, PenstockError, SchemaError, UnsupportedError
from penstock.formats.hdf5._about_groups import one_table
from penstock.formats.hdf5._field import Field
from penstock.formats.hdf5._file import (
    SCHEMA_ATTRIBUTE,
    SIGNATURE,
    Found,
    attributes,
    datasets,
    open_file,
    text_of,
    translated,
)
from penstock.formats.hdf5._groups import Chosen, GroupsReader, Within, open_groups
from penstock.formats.numpy.arrays import Cut
from penstock.limits import Limits
from penstock.storage.base import Sink, Source
from penstock.tuned import CHUNK_BYTES

CHUNK_RECORDS = 1 << 20
MOST_STEP_BYTES = 64 << 20
MOST_BATCH_BYTES = 256 << 20
LISTS_OF_BYTES: Any = pa.list_(pa.uint8())


@dataclass(frozen=True, slots=True)
class Hdf5ReadOptions:
    """Options for reading HDF5."""

    datasets: Sequence[str] | None = None
    """Names of the datasets or groups that form the table; None for all. With `group` they are names in each group."""
    group: str | None = None
    """The groups that each hold a table, such as "data/*": their records follow one another, with the column
    `episode`."""
    attributes: Sequence[str] | None = None
    """Attributes of each group that become columns, such as ["num_samples"]. Only with `group`."""
    mask: str | None = None
    """Only the groups that the dataset `mask/<this>` lists, as in files of robomimic. Only with `group`."""


class Hdf5Format(Format):
    """HDF5 as a penstock format."""

    info = FormatInfo(
        "hdf5",
        (".h5", ".hdf5", ".he5"),
        holds_decimals=False,
        only_appends=True,
        checksums="Fletcher-32 of chunks, if stored",
        compressions=("gzip", "lzf"),
        can_map=True,
        whole_dictionaries=("*",),
        holds_structs=False,
    )
    read_options = Hdf5ReadOptions
    split_option = "mask"

    @property
    def write_options(self) -> type:
        from penstock.formats.hdf5.writer import Hdf5Options

        return Hdf5Options

    def sniff(self, head: bytes, size: int) -> bool:
        """Whether the file is HDF5. The superblock states its own offset, so an HDF5 file inside another file is not
        detected."""
        for place in (0, 512, 1024, 2048):
            block = head[place : place + 32]
            if block[:8] == SIGNATURE and len(block) > 13:
                at = 12 if block[8] >= 2 else 24
                width = block[9] if block[8] >= 2 else block[13]
                base = int.from_bytes(block[at : at + width], "little")
                return place in (0, base)
        return False

    def open(self, source: Source, options: Options) -> Hdf5Reader | GroupsReader:
        """Open the file and check its datasets.

        Raises:
            FormatError, TruncatedError, LimitError: the file is not HDF5, or a size exceeds a limit.
            UnsupportedError: a dataset is in other files or needs a plug-in, Arrow lacks a type, h5py is not
                installed, or raw=True.
            SchemaError: the datasets differ in length, or a field of schema= is not in the file.
        """
        own = self.own_options(options)
        chosen = own.datasets
        if isinstance(chosen, str):
            raise TypeError("datasets must be a list of names")
        names = None if chosen is None else tuple(name.strip("/") for name in chosen)
        if own.group is not None:
            groups = Chosen(own.group, tuple(own.attributes or ()), own.mask)
            return open_groups(source, options, groups, partial(Hdf5Reader, chosen=names))
        if own.attributes is not None or own.mask is not None:
            word = "attributes" if own.mask is None else "mask"
            raise ValueError(f'{word}= is about groups: add group="data/*"')
        return Hdf5Reader(source, options, names)

    def layout(self, source: Source, record: int, options: Options) -> Iterator[Region]:
        from penstock.formats.hdf5._regions import file_regions

        yield from file_regions(source, record, options.limits)
        try:
            num_records = self.open(source, options).num_records
        except (FormatError, SchemaError, UnsupportedError):
            return  # the datasets do not form a table, so there are no records to count
        check_record(record, num_records)

    def create(self, sink: Sink, schema: pa.Schema, options: Any, threads: int) -> Writer:
        from penstock.formats.hdf5.writer import Hdf5Writer

        return Hdf5Writer(sink, schema, options)


class Hdf5Reader(Reader):
    """One open HDF5 file, or one group of it."""

    def __init__(
        self,
        source: Source,
        options: Options,
        chosen: tuple[str, ...] | None,
        within: Within | None = None,
    ) -> None:
        self._source = source
        self._path = source.path
        self._group: Any = None if within is None else within.group.handle
        self._lock = Lock() if within is None else within.lock
        self._file = open_file(source) if within is None else within.file
        if within is None:
            weakref.finalize(self, self._file.close)  # also when Python exits
        try:
            with translated(self._path):
                self._look(options, chosen)
        except BaseException:
            if within is None:
                self._file.close()
            raise
        filters = {f for field in self._fields.values() for f in field.found.filters}
        self._compression = ", ".join(sorted(filters - {"shuffle", "fletcher32"}))

    def _look(self, options: Options, chosen: tuple[str, ...] | None) -> None:
        group = self._group
        tables, single = datasets(self._file, chosen, options.limits, self._source.size, group)
        for name in chosen or ():
            if not any(f"{found.name}/".startswith(f"{name}/") for found in [*tables, *single]):
                message = "the file has no such dataset or group, or it is empty"
                raise SchemaError(message, field=name)
        sizes = {found.name: found.shape[0] for found in tables}
        self._num_records = one_table(sizes, group, chosen)
        self._fields = {found.name: self._field(found, options.limits) for found in tables}
        self._step = _step([field for field in self._fields.values() if not field.is_refused])
        metadata = attributes(self._file.id)
        kept = metadata.pop(SCHEMA_ATTRIBUTE, None)
        if group is None:
            metadata |= _texts_of(single)
        else:
            kept = None  # it is about the whole file
        fields = [field.field for field in self._fields.values()]
        self._stored: Any = pa.schema(fields, metadata or None)
        self.stored_names = self._stored.names
        self.schema = self._schema(options, kept)

    def _field(self, found: Found, limits: Limits) -> Field:
        try:
            return Field(found, self._source, self._lock, limits)
        except PenstockError as error:
            raise error.at(field=found.name) from None

    def _schema(self, options: Options, kept: bytes | None) -> Any:
        """Return the caller's schema, else the schema that was written, else that of the datasets."""
        if options.schema is not None:
            check_columns(options.schema, self._stored, self._path, options.settled)
            return options.schema
        if kept is None:
            return self._stored
        return restored(self._stored, kept, is_empty=not self._num_records)

    @property
    def num_records(self) -> int:
        return self._num_records

    @property
    def compression(self) -> str | None:
        return self._compression

    def _chunk(self, first: int, count: int) -> Chunk[None]:
        return Chunk(first, count, 0, self._source.size)

    def chunks(self) -> Iterator[Chunk[None]]:
        """Yield runs of whole chunks of HDF5, of about 2 MiB."""
        for first in range(0, self.num_records, self._step):
            yield self._chunk(first, min(self._step, self.num_records - first))

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[None], np.ndarray]]:
        """Yield all records in one pair, so that no chunk of HDF5 is read twice."""
        check_records(records, self.num_records, self._path)
        if len(records):
            yield self._chunk(0, self.num_records), records

    def decode(self, chunk: Chunk[None], records: Selection, columns: Projection) -> pa.RecordBatch:
        """Return some records of one chunk.

        Raises:
            FormatError: libhdf5 cannot read the values, or a value does not fit its type.
            SchemaError: there is no such column, or a value does not fit schema=.
        """
        schema: Any = projected(self.schema, columns, self._path)
        back: np.ndarray | None = None
        if records is None:
            cut = Cut.of_run(chunk.first_record, chunk.num_records)
        else:
            check_records(records, chunk.num_records, self._path)
            order, inverse = np.unique(records, return_inverse=True)
            if len(order) != len(records) or not np.array_equal(order, records):
                back = inverse.astype(np.int64)
            cut = Cut(order.astype(np.int64) + chunk.first_record)
        if not schema.names:
            return empty_columns(cut.total if back is None else len(back))
        arrays: list[Any] = []
        with translated(self._path):
            for name in schema.names:
                try:
                    wanted = schema.field(name).type
                    array = self._fields[name].read(cut, wanted, alone=records is not None)
                    arrays.append(_as_lists(array, wanted))
                except FormatError as error:
                    if error.record is not None:
                        error.record = int(cut.records[error.record])
                    raise error.at(field=name) from error.__cause__
        names, metadata = schema.names, self._stored.metadata
        batch: Any = pa.RecordBatch.from_arrays(arrays, names=names, metadata=metadata)
        batch = conform(batch, schema, self._path)
        return batch if back is None else gather(batch, back)

    def close(self) -> None:
        with self._lock:
            self._file.close()
        self._source.close()


def _step(fields: list[Field]) -> int:
    """Return how many records a chunk of penstock has: whole HDF5 chunks of the dataset with the longest chunks.
    Datasets whose chunks would make it too large are not considered."""
    size = max(sum(field.record_bytes for field in fields), 1)
    wanted = max(1, min(CHUNK_BYTES // size, CHUNK_RECORDS))
    # libhdf5's cache can hold a long chunk of a small field, but not of a large field.
    steps = [field.step for field in fields if field.step * size <= MOST_STEP_BYTES]
    large = max(fields, key=lambda field: field.record_bytes * field.step, default=None)
    step = max(steps, default=large.step if large else 1)
    step = -(-wanted // step) * step
    # An unwritten chunk of any size takes no bytes in the file. So limit a batch to MOST_BATCH_BYTES,
    # or to one chunk, whose size was checked.
    most = max(MOST_BATCH_BYTES, large.record_bytes * large.step if large else 0)
    return max(1, min(step, most // size))


def _texts_of(single: list[Found]) -> dict[bytes, bytes]:
    """Return values without axes as metadata, if they are small numbers or text."""
    import h5py

    texts: dict[bytes, bytes] = {}
    for found in single:
        dtype = found.dtype
        marks: Any = dtype.metadata or {}
        is_small = dtype.kind in "biufcSU" and "enum" not in marks and dtype.itemsize < 4096
        if is_small or marks.get("vlen") in (str, bytes):
            value = np.zeros((), dtype)
            found.id.read(h5py.h5s.ALL, h5py.h5s.ALL, value)
            texts[found.name.encode()] = text_of(value)
    return texts


def restored(stored: Any, text: bytes, *, is_empty: bool) -> Any:
    """Return the schema that was written, as far as the datasets fit it. Datasets without records fit any schema: class
    labels without names are stored as integers."""
    try:
        schema: Any = schema_of(base64.b64decode(text, validate=True))
    except (pa.ArrowException, ValueError, OSError, TypeError):
        return stored  # another program wrote the attribute
    names: list[str] = schema.names
    kept = {field.name: field for field in schema}
    fields = [
        field.with_type(kept[field.name].type)
        if field.name in kept and (is_empty or _fits(field.type, kept[field.name].type))
        else field
        for field in stored
    ]
    if sorted(names) == sorted(stored.names):
        fields.sort(key=lambda field: names.index(field.name))
    return pa.schema(fields, stored.metadata)


def _fits(stored: Any, wanted: Any) -> bool:
    """Whether stored values can be cast to the type that was written."""
    if wanted == stored or (stored, wanted) == (pa.binary(), LISTS_OF_BYTES):
        return True
    try:
        pa.nulls(0, stored).cast(wanted)
    except (pa.ArrowException, TypeError):
        return False
    return True


def _as_lists(array: Any, type_: Any) -> Any:
    """Convert binary to lists of uint8 if `type_` is such a list type. HDF5 stores both in the same way."""
    if array.type != pa.binary() or type_ != LISTS_OF_BYTES:
        return array
    _, offsets, data = array.buffers()
    count = int(np.frombuffer(offsets, np.int32)[len(array)])
    inner = pa.Array.from_buffers(pa.uint8(), count, [None, data])
    return pa.Array.from_buffers(type_, len(array), [None, offsets], children=[inner])
