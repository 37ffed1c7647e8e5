"""The view of `packed`: rows of one length, made of documents when they are read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_columns
from penstock.columns.joined import join
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Delivered, Reader, Stretch
from penstock.datasets._opened import Opened
from penstock.datasets._packed_arguments import ADDED
from penstock.datasets._packed_rows import Added, Documents, MadeRows, MissingTokenError
from penstock.datasets._packing import Pack, Packing, apart, in_one_line, shuffled, whole
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.files import Files
from penstock.datasets.lengths import lengths_of
from penstock.datasets.scan import shard_batches
from penstock.datasets.take import take
from penstock.engine.locks import Lock
from penstock.errors import FormatError, PenstockError, SchemaError, StaleIndexError
from penstock.orders import Order

How = Literal["cut", "whole", "apart"]
_PACK: dict[How, Pack] = {"cut": in_one_line, "whole": whole, "apart": apart}
_CHUNK_TOKENS = 1 << 18
"""The tokens of a batch."""


@dataclass(frozen=True)
class PackedView(View):
    """The checked arguments of `packed`."""

    columns: list[str]
    length: int
    bos: Mapping[str, float] | None
    eos: Mapping[str, float] | None
    """The values that are added to each document, in each of the columns; None: nothing."""
    pad: Mapping[str, float]
    """The value of padding in each of the columns."""
    how: How
    record_numbers: str | None = None
    """The name of a column with the record number of each token's document."""
    order: Order | None = None
    """The order in which the documents are packed. None: that of the files."""
    epoch: int = 0
    """The epoch of `order`."""

    keeps_columns = False
    keeps_records = False

    @property
    def column(self) -> str:
        """The column with the tokens."""
        return self.columns[0]

    def files(self, base: Files) -> PackedFiles:
        return PackedFiles(base, self)

    def fixed(self, base: Files) -> PackedView:
        return self

    def schema(self, base: Files) -> pa.Schema:
        given: list[Any] = [base.schema.field(name) for name in self.columns]
        types = {**{field.name: field.type.value_type for field in given}, **ADDED}
        if self.record_numbers is not None:
            types[self.record_numbers] = pa.int64()
        fields = [pa.field(name, pa.list_(one, self.length), False) for name, one in types.items()]
        for place, field in enumerate(given):
            fields[place] = fields[place].with_metadata(field.metadata)
        return pa.schema(fields)

    def added_to(self, column: str) -> Added:
        """What is added to each document and each row in a column."""
        return Added(*self._ends(column), self.pad[column])

    def _ends(self, column: str) -> tuple[float | None, float | None]:
        """The values of `bos` and `eos` in a column."""
        bos, eos = (None if end is None else end[column] for end in (self.bos, self.eos))
        return bos, eos

    @property
    def facts(self) -> tuple[Any, ...]:
        """What determines the values of the rows, besides the places of the documents."""
        pad = [self.pad[name] for name in self.columns]
        others = [end for name in self.columns[1:] for end in self._ends(name)]
        # Values of 0 add nothing, so that states of such rows that were saved before there was an argument fit.
        added = [*(pad if any(pad) else ()), *(["ends", *others] if any(others) else ())]
        return self.columns, self.length, *self._ends(self.column), self.how, *added

    @property
    def _num_added(self) -> int:
        return (self.bos is not None) + (self.eos is not None)

    def packing(self, opened: Opened) -> Packing:
        lengths = lengths_of(opened, self.columns)
        self._check_alike(opened.files, lengths)
        sizes = lengths[self.column].astype(np.int64)
        sizes[sizes > 0] += self._num_added
        longest = int(sizes.max(initial=0))
        if self.how == "whole" and longest > self.length:
            raise self._too_long(opened.files, sizes, longest)
        pack = _PACK[self.how]
        if self.order is None:
            return pack(sizes, self.length)
        return shuffled(pack, sizes, self.length, self._ordered(self.order, opened.files))

    def _ordered(self, order: Order, files: Files) -> np.ndarray:
        """The record numbers in the order of the documents, int64[n]."""
        layout: dict[str, Any] = {}
        if order.layout == "chunk_lengths":
            lengths = files.chunk_lengths
            layout = {"chunk_lengths": lengths} if sum(lengths) == files.num_records else {}
        elif order.layout == "shard_lengths":
            layout = {"shard_lengths": np.diff(files.firsts)}
        stop = order.length(files.num_records)
        return order.take(files.num_records, self.epoch, 0, stop, **layout)

    def _check_alike(self, files: Files, lengths: Mapping[str, np.ndarray]) -> None:
        """Raise SchemaError if lists of the same record differ in length."""
        sizes = lengths[self.column]
        for name in self.columns[1:]:
            if (differ := lengths[name] != sizes).any():
                number = int(np.argmax(differ))
                raise SchemaError(
                    f"the list has {lengths[name][number]} values, and {self.column!r} has {sizes[number]} in this"
                    " record; packed needs one for each token",
                    **place_of(files, number),
                    field=name,
                    hint=f"ds.filter('len({name}) == len({self.column})')",
                )

    def _too_long(self, files: Files, sizes: np.ndarray, longest: int) -> SchemaError:
        are_longer = sizes > self.length
        number = int(np.argmax(are_longer))
        tokens = [name for name in ("bos", "eos") if getattr(self, name) is not None]
        added = f" with its {' and '.join(tokens)}" if tokens else ""
        most = self.length - len(tokens)
        return SchemaError(
            f"{int(are_longer.sum())} documents are longer than a row ({self.length}); the first has"
            f" {int(sizes[number])} tokens{added}",
            **place_of(files, number),
            field=self.column,
            hint=f"length={longest}, split=True, or ds.filter('len({self.column}) <= {most}')",
        )


def place_of(files: Files, number: int) -> dict[str, Any]:
    """The file of a record, and its number there."""
    shards, local = files.locate(np.array([number]))
    shard = int(shards[0])
    return {"file": files.paths[shard], "record": int(files.in_file(shard, local)[0])}


class PackedFiles(ViewFiles):
    """The rows of packed documents. A row belongs to the file in which its first document is."""

    view: PackedView

    def __init__(self, base: Files, view: PackedView) -> None:
        super().__init__(base, view)
        self.schema = view.schema(base)
        self.documents = Opened(base, None)
        self._lock = Lock()
        self._packing: Packing | None = None
        self._first_records: np.ndarray | None = None

    @property
    def packing(self) -> Packing:
        with self._lock:
            if self._packing is None:
                self._packing = self.view.packing(self.documents)
            return self._packing

    @property
    def first_records(self) -> np.ndarray:
        """The number of the first document of each row, int64[rows]."""
        if self._first_records is None:
            self._first_records = self.packing.first_records()
        return self._first_records

    @property
    def firsts(self) -> np.ndarray:
        if self._firsts is None:
            self._firsts = np.searchsorted(self.first_records, self.base.firsts).astype(np.int64)
            self.uncounted = self.documents.damage
        return self._firsts

    @property
    def choice_digest(self) -> str:
        view, packing = self.view, self.packing
        facts = (self.base.choice_digest, *view.facts)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
        for array in (packing.records, packing.ends):
            digest.update(np.ascontiguousarray(array, "<i8").data)
        return digest.hexdigest()

    def reader(self, shard: int) -> Reader:
        return PackedReader(self, shard)

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        records = self.first_records[self.firsts[shard] + numbers]
        return self.base.in_file(shard, records - self.base.firsts[shard])

    def complete(self, *, is_found: bool = False) -> Files:
        del is_found
        return self

    def missing(self, record: int, column: str) -> SchemaError:
        """The error for a document with a null."""
        has_all = (
            f"lambda batch: [None not in (one or []) for one in batch[{column!r}].to_pylist()]"
        )
        return SchemaError(
            "a token is missing (null)",
            **place_of(self.base, record),
            field=column,
            hint=f"ds.filter({has_all}) leaves such documents out",
        )

    def check_read(self, shard: int, chunk: Chunk[Any] | None = None) -> None:
        """Check only the file, because a chunk is one of rows."""
        self.base.check_read(shard)


class _Read(NamedTuple):
    """`Chunk.data`: rows, and their documents if these were read already."""

    rows: np.ndarray
    documents: Documents | None = None


class PackedReader(Reader):
    """Reads the rows that belong to one file."""

    def __init__(self, files: PackedFiles, shard: int) -> None:
        self._files = files
        self._shard = shard
        self.schema = files.schema

    @property
    def num_records(self) -> int:
        first, last = self._files.firsts[self._shard : self._shard + 2]
        return int(last - first)

    def chunks(self) -> Iterator[Chunk[_Read]]:
        """The rows whose first document is in the same chunk of the file, in parts that are not too large."""
        files, shard = self._files, self._shard
        first, last = files.firsts[shard : shard + 2].tolist()
        in_file = files.first_records[first:last] - files.base.firsts[shard]
        starts = [chunk.first_record for chunk in files.base.reader(shard).chunks()]
        edges = np.searchsorted(in_file, starts)
        for begin, end in pairwise([*edges.tolist(), last - first]):
            yield from self._in_parts(first + begin, first + end)

    def _in_parts(
        self, begin: int, end: int, documents: Documents | None = None
    ) -> Iterator[Chunk[_Read]]:
        step = max(_CHUNK_TOKENS // self._files.view.length, 1)
        for row in range(begin, end, step):
            rows = np.arange(row, min(row + step, end))
            number = row - int(self._files.firsts[self._shard])
            yield Chunk(number, len(rows), 0, 0, _Read(rows, documents))

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        """Scan the documents once, from front to back. They are read by number around damage, and if the documents of a
        row are in any order."""
        is_in_order = self._files.view.order is None
        is_scanned = is_in_order and self._files.options.damage == "error"
        return self._scanned(threads) if is_scanned else self.chunks()

    def _scanned(self, threads: int) -> Iterator[Chunk[_Read]]:
        files, shard = self._files, self._shard
        done, last = files.firsts[shard : shard + 2].tolist()
        if done == last:
            return
        # All rows up to a row can be made once the documents up to this one are there.
        needed = np.maximum.accumulate(files.packing.last_records(np.arange(done, last)))
        begin, end = done, int(files.base.firsts[shard])
        held: list[pa.RecordBatch] = []
        held_from = end
        batches = shard_batches(
            files.documents, files.view.columns, threads, [shard], is_cautious=True
        )
        with closing(batches):
            for _, batch in batches:
                held.append(batch)
                end += batch.num_rows
                ready = begin + int(np.searchsorted(needed, end))
                if ready > done:
                    lists = held[0] if len(held) == 1 else join(held)
                    documents = Documents(lists, np.arange(held_from, end))
                    yield from self._in_parts(done, ready, documents)
                    done = ready
                    keep = min(int(files.first_records[done]), end) if done < last else end
                    held, held_from = [lists.slice(keep - held_from)], keep
        # These rows also have documents of the next files.
        yield from self._in_parts(done, last)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[_Read], Selection]]:
        if len(records):
            rows = records + self._files.firsts[self._shard]
            yield Chunk(-1, len(rows), 0, 0, _Read(rows)), None

    def decode(
        self, chunk: Chunk[_Read], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        rows, documents = chunk.data
        return self._rows(rows if records is None else rows[records], documents, columns)

    def delivered(self, chunk: Chunk[_Read], records: Selection, columns: Projection) -> Delivered:
        try:
            return Delivered(self.decode(chunk, records, columns), records)
        except StaleIndexError:
            raise
        except (FormatError, SchemaError) as error:
            places = np.arange(chunk.num_records) if records is None else records
            raise self._with_row(error, chunk, places, columns) from None

    def _with_row(
        self,
        error: PenstockError,
        chunk: Chunk[_Read],
        places: np.ndarray,
        columns: Projection,
    ) -> PenstockError:
        """Return the error of the first row that cannot be read, with the number of this row."""
        while len(places) > 1:
            half = places[: len(places) // 2]
            try:
                self.decode(chunk, half, columns)
                places = places[len(half) :]
            except (FormatError, SchemaError) as found:
                places, error = half, found
        error.row = chunk.first_record + int(places[0])
        return error

    def close(self) -> None:
        pass

    def _rows(
        self, rows: np.ndarray, documents: Documents | None, columns: Projection
    ) -> pa.RecordBatch:
        files = self._files
        names = self.schema.names if columns is None else list(columns)
        if not names:
            return empty_columns(len(rows))
        pieces = files.packing.pieces(rows)
        made = MadeRows(pieces, len(rows), files.view.length)
        numbers = files.view.record_numbers
        arrays: list[pa.Array] = []
        for name in names:
            if name in files.view.columns:
                if documents is None:
                    read = [name for name in names if name in files.view.columns]
                    documents = self._read(pieces.record, read)
                try:
                    arrays.append(made.tokens(documents, name, files.view.added_to(name)))
                except MissingTokenError as error:
                    raise files.missing(error.record, name) from None
            else:
                arrays.append(made.column("record" if name == numbers else name))
        schema = pa.schema([self.schema.field(name) for name in names])
        lists = [
            pa.FixedSizeListArray.from_arrays(array, type=type_)
            for array, type_ in zip(arrays, schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(lists, schema=schema)

    def _read(self, records: np.ndarray, columns: Sequence[str]) -> Documents:
        files = self._files
        numbers = np.unique(records)
        batch = take(files.documents, numbers, columns)
        for shard in np.unique(files.base.locate(numbers)[0]).tolist():
            files.base.check_unchanged(shard)
        return Documents(batch, numbers)
