"""`packed`: documents of different length as rows of one length, for language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.datasets import _packed_arguments as arguments
from penstock.datasets._packed_view import How, PackedView
from penstock.datasets.dataset import Dataset
from penstock.limits import checked_count
from penstock.orders import Order


def packed(
    ds: Dataset,
    column: str | Sequence[str],
    length: int,
    *,
    bos: float | Mapping[str, float] | None = None,
    eos: float | Mapping[str, float] | None = None,
    split: bool = True,
    pad: float | Mapping[str, float] = 0,
    record_numbers: str | None = None,
    order: Order | None = None,
    epoch: int = 0,
) -> Dataset:
    """Pack the documents in a column of lists into rows of one length. Nothing is copied: the result is a dataset whose
    records are these rows.

    The lengths of the documents decide where each one goes. They are read once, and kept in the index. So a row has a
    number like any record: `take`, every order, all ranks and an exact resume work as with other datasets. Each row has
    four lists of `length` values:

    - the column, with the tokens. Padding at the end is `pad`.
    - `document`, int32: 1 for all tokens of the first document in the row, 2 for the next; 0 for padding.
    - `position`, int32: 0, 1, … from the first token of each document in the row.
    - `mask`, bool: False for padding.

    Args:
        ds: a Dataset.
        column: a column of lists of numbers. Or a list of columns that go together, such as ["tokens", "loss_mask"]:
            the first has the tokens, and the others have a number or a truth value for each token, which are packed in
            the same places. Other columns are not in the result.
        length: tokens in a row.
        bos, eos: a token to be added to the beginning or the end of each document. {column: value} for several columns,
            such as eos={"tokens": 1, "labels": 1}, so that a model learns where a document ends. A column without
            a value has its padding there: 0 or False, or what `pad` says.
        split: True puts documents one after another, and cuts them at the end of a row. The next row goes on with the
            rest as a document of its own, whose positions begin at 0, because attention sees only the row. Only the
            last row has padding. False cuts no document: each goes into the fullest row that has room for it
            (best fit), among the documents that are near it in the files.
        pad: the token for padding. {column: value} for several columns, such as {"tokens": 2, "labels": -100}; the
            others have 0 or False there.
        record_numbers: the name of one more list, int64: for each token the number of its document in `ds`, and -1 for
            padding.
        order: the order in which documents are packed, such as penstock.Shuffled(seed): a new packing for each `epoch`.
            None: that of the files, and all epochs have the same rows. The rows are sorted by their first documents in
            any case, and read their documents by number.
        epoch: the epoch of `order`.

    Documents without tokens are left out, even if `eos` or `bos` would be added to them:
    `ds.count("len(tokens) == 0 or tokens is null")` counts them. So are damaged ones, if `ds` was opened with `damage="skip"`.

    Raises:
        SchemaError: there is no such column, it does not hold lists of numbers, or `bos`, `eos` or `pad` does not fit its
            type. The rows already have a column with the name of `record_numbers`. The lists of several columns differ in length in a record. With split=False, a document is longer than a row.
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
        >>> ends = {"tokens": 1, "loss_mask": 1}
        >>> row = ps.packed(ps.open("answers.parquet"), ["tokens", "loss_mask"], 7, eos=ends)[0]
        >>> row["loss_mask"]
        [0, 1, 1, 1, 0, 1, 1]
        >>> rows = ps.packed(
        ...     ps.open("documents.parquet"), "tokens", 6, pad=2, record_numbers="record"
        ... )
        >>> rows[1]["tokens"], rows[1]["record"]
        ([4, 4, 4, 2, 2, 2], [2, 2, 2, -1, -1, -1])
    """
    how: How = "cut" if split else "whole"
    epoch = arguments.checked_order(order, epoch)
    return _rows_of(ds, column, length, (bos, eos), pad, record_numbers, how, order, epoch)


def pieces(
    ds: Dataset,
    column: str | Sequence[str],
    length: int,
    *,
    bos: float | Mapping[str, float] | None = None,
    eos: float | Mapping[str, float] | None = None,
    pad: float | Mapping[str, float] = 0,
    record_numbers: str | None = None,
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
    return _rows_of(ds, column, length, (bos, eos), pad, record_numbers, "apart")


def _rows_of(
    ds: Dataset,
    column: str | Sequence[str],
    length: int,
    ends: tuple[Any, Any],
    pad: Any,
    record_numbers: Any,
    how: How,
    order: Order | None = None,
    epoch: int = 0,
) -> Dataset:
    columns = arguments.checked_columns(ds, column)
    length = checked_count("length", length, 1)
    padding = arguments.checked_pad(ds, columns, pad)
    bos, eos = (
        arguments.checked_end(ds, columns, name, end, padding)
        for name, end in zip(("bos", "eos"), ends, strict=True)
    )
    numbers = arguments.checked_record_numbers(record_numbers, columns)
    view = PackedView(columns, length, bos, eos, padding, how, numbers, order, epoch)
    rows = ds.view(view)
    len(rows)  # reads the lengths
    return rows
