"""`packed`: documents of different length as rows of one length, for language models."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_columns
from penstock.columns.numbers import as_booleans
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Delivered, Reader
from penstock.datasets._opened import Opened
from penstock.datasets._packing import Packing, Pieces, in_one_line, whole
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.dataset import Dataset
from penstock.datasets.files import Files
from penstock.datasets.lengths import lengths_of
from penstock.datasets.take import take
from penstock.engine.locks import Lock
from penstock.errors import FormatError, PenstockError, SchemaError, StaleIndexError
from penstock.limits import checked_count

_ADDED = {"document": pa.int32(), "position": pa.int32(), "mask": pa.bool_()}
_CHUNK_TOKENS = 1 << 20


def packed(
    ds: Dataset, column: str, length: int, *, eos: int | None = None, split: bool = True
) -> Dataset:
    """Pack the documents in a column of lists into rows of one length. Nothing is copied: the result is a dataset whose
    records are these rows.

    The lengths of the documents decide where each one goes. They are read once, and kept in the index. So a row has a
    number like any record: `take`, every order, all ranks and an exact resume work as with other datasets. Each row has
    four lists of `length` values:

    - the column, with the tokens. Padding at the end is 0.
    - `document`, int32: 1 for all tokens of the first document in the row, 2 for the next; 0 for padding.
    - `position`, int32: 0, 1, … from the first token of each document in the row.
    - `mask`, bool: False for padding.

    Args:
        ds: a Dataset.
        column: a column of lists of numbers. The other columns are not in the result.
        length: tokens in a row.
        eos: a token to be added to the end of each document.
        split: True puts documents one after another, and cuts them at the end of a row. The next row goes on with the
            rest as a document of its own, whose positions begin at 0, because attention sees only the row. Only the
            last row has padding. False cuts no document: each goes into the fullest row that has room for it
            (best fit), among the documents that are near it in the files.

    Documents without tokens are left out. So are damaged ones, if `ds` was opened with `damage="skip"`.

    Raises:
        SchemaError: there is no such column, it does not hold lists of numbers, or `eos` does not fit its type. With
            split=False, also if a document is longer than a row.
        PenstockError: a document is damaged.

    Example:
        >>> import penstock as ps
        >>> tokens = [[5, 6, 7], [8, 9], [4, 4, 4, 4]]
        >>> _ = ps.write({"tokens": tokens}, "documents.parquet", overwrite=True)
        >>> rows = ps.packed(ps.open("documents.parquet"), "tokens", 5)
        >>> len(rows), rows[0]["tokens"], rows[0]["document"], rows[0]["position"]
        (2, [5, 6, 7, 8, 9], [1, 1, 1, 2, 2], [0, 1, 2, 0, 1])
        >>> rows[1]["tokens"], rows[1]["mask"]
        ([4, 4, 4, 4, 0], [True, True, True, True, False])
    """
    _check_column(ds, column)
    view = PackedView(
        column, checked_count("length", length, 1), _checked_eos(ds, column, eos), split
    )
    rows = ds.view(view)
    len(rows)  # reads the lengths
    return rows


def _check_column(ds: Any, column: str) -> None:
    if not isinstance(ds, Dataset):
        raise TypeError(f"packed takes a Dataset, not {type(ds).__name__}; try penstock.open")
    names = ds.schema.names
    if column not in names:
        raise SchemaError(f"no such column; there are: {', '.join(names)}", field=column)
    if column in _ADDED:
        raise SchemaError(
            "packed adds a column of this name",
            field=column,
            hint='penstock.rename_fields gives the column another name, such as "tokens"',
        )
    type_: Any = ds.schema.field(column).type
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
    if not (is_list and _is_number(type_.value_type)):
        raise SchemaError(
            f"packed takes a column of lists of numbers, but this column is {type_}", field=column
        )


def _is_number(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_floating(type_)


def _checked_eos(ds: Dataset, column: str, eos: Any) -> int | float | None:
    if eos is None:
        return None
    type_: Any = ds.schema.field(column).type
    try:
        return pa.scalar(eos, type_.value_type).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaError(f"eos={eos!r} does not fit {type_.value_type}", field=column) from error


class PackedView(View):
    """The arguments of `packed`."""

    keeps_columns = False

    def __init__(self, column: str, length: int, eos: int | float | None, split: bool) -> None:
        self.column = column
        self.length = length
        self.eos = eos
        self.split = split

    def files(self, base: Files) -> PackedFiles:
        return PackedFiles(base, self)

    def fixed(self, base: Files) -> PackedView:
        return self

    def schema(self, base: Files) -> pa.Schema:
        field: Any = base.schema.field(self.column)
        types = {self.column: field.type.value_type, **_ADDED}
        fields = [pa.field(name, pa.list_(one, self.length), False) for name, one in types.items()]
        return pa.schema([fields[0].with_metadata(field.metadata), *fields[1:]])

    def packing(self, opened: Opened) -> Packing:
        sizes = lengths_of(opened, [self.column])[self.column].astype(np.int64)
        if self.eos is not None:
            sizes[sizes > 0] += 1
        if self.split:
            return in_one_line(sizes, self.length)
        if (longest := int(sizes.max(initial=0))) > self.length:
            raise self._too_long(opened.files, sizes, longest)
        return whole(sizes, self.length)

    def _too_long(self, files: Files, sizes: np.ndarray, longest: int) -> SchemaError:
        are_longer = sizes > self.length
        number = int(np.argmax(are_longer))
        shards, local = files.locate(np.array([number]))
        shard = int(shards[0])
        added = "" if self.eos is None else " with its eos"
        return SchemaError(
            f"{int(are_longer.sum())} documents are longer than a row ({self.length}); the first has"
            f" {int(sizes[number])} tokens{added}",
            file=files.paths[shard],
            record=int(files.in_file(shard, local)[0]),
            field=self.column,
            hint=f"length={longest}, split=True, or ds.filter('len({self.column}) <= …')",
        )


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
        facts = (self.base.choice_digest, view.column, view.length, view.eos, view.split)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
        for array in (packing.records, packing.ends):
            digest.update(np.ascontiguousarray(array, "<i8"))
        return digest.hexdigest()

    def reader(self, shard: int) -> Reader:
        return PackedReader(self, shard)

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        records = self.first_records[self.firsts[shard] + numbers]
        return self.base.in_file(shard, records - self.base.firsts[shard])

    def complete(self) -> Files:
        return self

    def check_read(self, shard: int, chunk: Chunk[Any] | None = None) -> None:
        """Check only the file, because a chunk is one of rows."""
        self.base.check_read(shard)


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

    def chunks(self) -> Iterator[Chunk[np.ndarray]]:
        step = max(_CHUNK_TOKENS // self._files.view.length, 1)
        first, last = self._files.firsts[self._shard : self._shard + 2].tolist()
        for begin in range(first, last, step):
            rows = np.arange(begin, min(begin + step, last))
            yield Chunk(begin - first, len(rows), 0, 0, rows)

    def pick(self, records: np.ndarray) -> Iterable[tuple[Chunk[np.ndarray], Selection]]:
        if len(records):
            rows = records + self._files.firsts[self._shard]
            yield Chunk(-1, len(rows), 0, 0, rows), None

    def decode(
        self, chunk: Chunk[np.ndarray], records: Selection, columns: Projection
    ) -> pa.RecordBatch:
        rows = chunk.data if records is None else chunk.data[records]
        return self._rows(rows, columns)

    def delivered(
        self, chunk: Chunk[np.ndarray], records: Selection, columns: Projection
    ) -> Delivered:
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
        chunk: Chunk[np.ndarray],
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

    # -- rows -----------------------------------------------------------------------------------

    def _rows(self, rows: np.ndarray, columns: Projection) -> pa.RecordBatch:
        names = self.schema.names if columns is None else list(columns)
        if not names:
            return empty_columns(len(rows))
        view = self._files.view
        pieces = self._files.packing.pieces(rows)
        places = _Places(pieces, len(rows), view.length)
        arrays = [
            self._tokens(pieces, places) if name == view.column else places.column(name)
            for name in names
        ]
        schema = pa.schema([self.schema.field(name) for name in names])
        found = [
            pa.FixedSizeListArray.from_arrays(array, type=type_)
            for array, type_ in zip(arrays, schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(found, schema=schema)

    def _tokens(self, pieces: Pieces, places: _Places) -> pa.Array:
        """Read the documents of the pieces, and return the tokens of all rows."""
        view, files = self._files.view, self._files.base
        records, document = np.unique(pieces.record, return_inverse=True)
        batch = take(self._files.documents, records, [view.column])
        for shard in np.unique(files.locate(records)[0]).tolist():
            files.check_unchanged(shard)
        offsets, values = self._flat(batch.column(0), records)
        begin = offsets[document] + pieces.skip
        ends = np.cumsum(pieces.size)
        if view.eos is None and (begin[1:] == (begin + pieces.size)[:-1]).all():
            found = values[begin[0] : begin[0] + ends[-1]] if len(begin) else values[:0]
        else:
            index = np.repeat(begin - (ends - pieces.size), pieces.size)
            index += np.arange(len(index))
            # The place of an eos may be after the last value.
            found = values.take(index, mode="clip")
            if view.eos is not None:
                found[ends[pieces.is_end] - 1] = view.eos
        return pa.array(places.spread(found))

    def _flat(self, lists: Any, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The start of each list, and all values."""
        offsets = np.asarray(lists.offsets.to_numpy(zero_copy_only=False), np.int64)
        values = lists.values
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False)[: offsets[-1]]
            missing[: offsets[0]] = False
            if missing.any():
                raise self._missing(records, offsets, int(np.argmax(missing)))
            values = values.fill_null(0)
        return offsets, values.to_numpy(zero_copy_only=False)

    def _missing(self, records: np.ndarray, offsets: np.ndarray, value: int) -> SchemaError:
        number = records[[int(np.searchsorted(offsets, value, "right")) - 1]]
        shards, local = self._files.base.locate(number)
        shard = int(shards[0])
        return SchemaError(
            "a token is missing (null)",
            file=self._files.paths[shard],
            record=int(self._files.base.in_file(shard, local)[0]),
            field=self._files.view.column,
        )


class _Places:
    """Where the tokens of some pieces are in their rows."""

    def __init__(self, pieces: Pieces, num_rows: int, length: int) -> None:
        self._pieces = pieces
        self._shape = num_rows, length
        self._total = int(pieces.size.sum())
        filled = np.bincount(pieces.row, pieces.size, num_rows)
        self.mask = (
            None if self._total == num_rows * length else np.arange(length) < filled[:, None]
        )
        """bool[rows, length]: False for padding. None if there is none."""

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Put the values of all tokens into rows, and fill up with zeros."""
        if self.mask is None:
            return values
        spread = np.zeros(self._shape, values.dtype)
        spread[self.mask] = values
        return spread.reshape(-1)

    def column(self, name: str) -> pa.Array:
        """One of the columns that do not need the tokens."""
        size = self._pieces.size
        if name == "mask":
            return as_booleans(
                np.ones(self._total, bool) if self.mask is None else self.mask.reshape(-1)
            )
        if name == "document":
            return pa.array(self.spread(np.repeat(self._pieces.number.astype(np.int32), size)))
        begin = (np.cumsum(size) - size).astype(np.int32)
        return pa.array(
            self.spread(np.arange(self._total, dtype=np.int32) - np.repeat(begin, size))
        )
