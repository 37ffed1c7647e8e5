"""`packed`: documents of different length as rows of one length, for language models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.batches import empty_columns
from penstock.columns.joined import join
from penstock.columns.selection import Projection, Selection
from penstock.contract.format import Chunk, Delivered, Reader, Stretch
from penstock.datasets._opened import Opened
from penstock.datasets._packed_arguments import ADDED, checked_columns, checked_token
from penstock.datasets._packed_rows import Added, Documents, MadeRows, MissingTokenError
from penstock.datasets._packing import Packing, apart, in_one_line, whole
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.dataset import Dataset
from penstock.datasets.files import Files
from penstock.datasets.lengths import lengths_of
from penstock.datasets.scan import shard_batches
from penstock.datasets.take import take
from penstock.engine.locks import Lock
from penstock.errors import FormatError, PenstockError, SchemaError, StaleIndexError
from penstock.limits import checked_count

How = Literal["cut", "whole", "apart"]
"""Which function of `_packing` places the documents."""
_CHUNK_TOKENS = 1 << 18
"""The tokens of a batch."""


def packed(
    ds: Dataset,
    column: str | Sequence[str],
    length: int,
    *,
    bos: int | None = None,
    eos: int | None = None,
    split: bool = True,
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
        column: a column of lists of numbers. Or a list of columns that go together, such as ["tokens", "loss_mask"]:
            the first has the tokens, and the others have a number or a truth value for each token, which are packed in
            the same places. Other columns are not in the result.
        length: tokens in a row.
        bos, eos: a token to be added to the beginning or the end of each document. The other columns have 0 or False
            there.
        split: True puts documents one after another, and cuts them at the end of a row. The next row goes on with the
            rest as a document of its own, whose positions begin at 0, because attention sees only the row. Only the
            last row has padding. False cuts no document: each goes into the fullest row that has room for it
            (best fit), among the documents that are near it in the files.

    Documents without tokens are left out, even if `eos` or `bos` would be added to them:
    `ds.count("len(tokens) == 0 or tokens is null")` counts them. So are damaged ones, if `ds` was opened with `damage="skip"`.

    Raises:
        SchemaError: there is no such column, it does not hold lists of numbers, or `bos` or `eos` does not fit its type. The
            lists of several columns differ in length in a record. With split=False, a document is longer than a row.
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
        >>> answers = {"tokens": [[5, 6, 7], [8, 9]], "loss_mask": [[0, 1, 1], [0, 1]]}
        >>> _ = ps.write(answers, "answers.parquet", overwrite=True)
        >>> row = ps.packed(ps.open("answers.parquet"), ["tokens", "loss_mask"], 7, eos=1)[0]
        >>> row["tokens"], row["loss_mask"]
        ([5, 6, 7, 1, 8, 9, 1], [0, 1, 1, 0, 0, 1, 0])
    """
    return _rows_of(ds, column, length, (bos, eos), "cut" if split else "whole")


def pieces(
    ds: Dataset,
    column: str | Sequence[str],
    length: int,
    *,
    bos: int | None = None,
    eos: int | None = None,
) -> Dataset:
    """Cut the documents in a column of lists into rows of one length. Each document begins a new row, and its last row is
    filled up with padding. The columns, arguments and errors are those of `packed`; `document` is 1 for all tokens.

    Example:
        >>> import penstock as ps
        >>> tokens = [[5, 6, 7, 8, 9], [4]]
        >>> _ = ps.write({"tokens": tokens}, "long.parquet", overwrite=True)
        >>> rows = ps.pieces(ps.open("long.parquet"), "tokens", 3)
        >>> [row["tokens"] for row in rows]
        [[5, 6, 7], [8, 9, 0], [4, 0, 0]]
    """
    return _rows_of(ds, column, length, (bos, eos), "apart")


def _rows_of(
    ds: Dataset, column: str | Sequence[str], length: int, added: tuple[Any, Any], how: How
) -> Dataset:
    columns = checked_columns(ds, column)
    length = checked_count("length", length, 1)
    bos, eos = (
        checked_token(ds, columns[0], name, token)
        for name, token in zip(("bos", "eos"), added, strict=True)
    )
    rows = ds.view(PackedView(columns, length, bos, eos, how))
    len(rows)  # reads the lengths
    return rows


class PackedView(View):
    """The arguments of `packed`."""

    keeps_columns = False
    keeps_records = False

    def __init__(
        self,
        columns: Sequence[str],
        length: int,
        bos: float | None,
        eos: float | None,
        how: How,
    ) -> None:
        self.columns = list(columns)
        self.column = self.columns[0]
        """The column with the tokens."""
        self.length = length
        self.bos = bos
        self.eos = eos
        self.how: How = how

    def files(self, base: Files) -> PackedFiles:
        return PackedFiles(base, self)

    def fixed(self, base: Files) -> PackedView:
        return self

    def schema(self, base: Files) -> pa.Schema:
        given: list[Any] = [base.schema.field(name) for name in self.columns]
        types = {**{field.name: field.type.value_type for field in given}, **ADDED}
        fields = [pa.field(name, pa.list_(one, self.length), False) for name, one in types.items()]
        for place, field in enumerate(given):
            fields[place] = fields[place].with_metadata(field.metadata)
        return pa.schema(fields)

    def added_to(self, column: str) -> Added:
        """What is added to each document in a column."""
        if column == self.column:
            return Added(self.bos, self.eos)
        return Added(*(None if token is None else 0 for token in (self.bos, self.eos)))

    @property
    def _num_added(self) -> int:
        return (self.bos is not None) + (self.eos is not None)

    def packing(self, opened: Opened) -> Packing:
        lengths = lengths_of(opened, self.columns)
        self._check_alike(opened.files, lengths)
        sizes = lengths[self.column].astype(np.int64)
        sizes[sizes > 0] += self._num_added
        if self.how != "whole":
            return (in_one_line if self.how == "cut" else apart)(sizes, self.length)
        if (longest := int(sizes.max(initial=0))) > self.length:
            raise self._too_long(opened.files, sizes, longest)
        return whole(sizes, self.length)

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
        facts = (self.base.choice_digest, view.columns, view.length, view.bos, view.eos, view.how)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
        for array in (packing.records, packing.ends):
            digest.update(np.ascontiguousarray(array, "<i8").data)
        return digest.hexdigest()

    def reader(self, shard: int) -> Reader:
        return PackedReader(self, shard)

    def in_file(self, shard: int, numbers: np.ndarray) -> np.ndarray:
        records = self.first_records[self.firsts[shard] + numbers]
        return self.base.in_file(shard, records - self.base.firsts[shard])

    def complete(self) -> Files:
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
        """Scan the documents once, from front to back. Only around damage are they read by number."""
        return self._scanned(threads) if self._files.options.damage == "error" else self.chunks()

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
        arrays: list[pa.Array] = []
        for name in names:
            if name in files.view.columns:
                if documents is None:
                    documents = self._read(pieces.record, [n for n in names if n not in ADDED])
                try:
                    arrays.append(made.tokens(documents, name, files.view.added_to(name)))
                except MissingTokenError as error:
                    raise files.missing(error.record, name) from None
            else:
                arrays.append(made.column(name))
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
