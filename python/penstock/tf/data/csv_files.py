"""`tf.data.experimental.CsvDataset` and `make_csv_dataset`: datasets of CSV files."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from penstock.tf.csv_columns import fields_of, records_of, value_of
from penstock.tf.data.base import Base
from penstock.tf.data.dataset import Dataset
from penstock.tf.data.op import Op, Stream
from penstock.tf.data.records import container_of, names_of, raw_lines
from penstock.tf.dtypes import DType, as_dtype, string
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.number_texts import number_of
from penstock.tf.patterns import matching
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.text_values import text_of

_TYPES = ("int32", "int64", "float32", "float64", "string")


class _Csv(Op):
    """The records of CSV files, as tuples of scalars."""

    def __init__(
        self,
        files: list[str],
        defaults: list[Tensor],
        container: str,
        header: bool,
        between: str,
        quotes: bool,
        missing: str,
        columns: Sequence[int] | None,
    ) -> None:
        self._files, self._defaults, self._container = files, defaults, container
        self._header, self._between, self._quotes = header, between.encode(), quotes
        self._missing, self._columns = missing, columns

    def open(self) -> Stream:
        return self._run()

    def _run(self) -> Iterator[Any]:
        for file in self._files:
            records = self._fields(file)
            if self._header:
                next(records, None)
            for number, fields in enumerate(records):
                yield self._record(number, fields)

    def _fields(self, file: str) -> Iterator[list[bytes]]:
        return fields_in(file, self._container, self._between, self._quotes)

    def _record(self, number: int, fields: list[bytes]) -> tuple[Tensor, ...]:
        if self._columns is not None:
            fields = [fields[c] for c in self._columns if c < len(fields)]
        if len(fields) != len(self._defaults):
            raise InvalidArgumentError(
                None, None, f"Expect {len(self._defaults)} fields but have {len(fields)} in record"
            )
        return tuple(
            np.array(
                value_of(field, default, self._missing, number, place), default.dtype.dtype
            ).view(Tensor)
            for place, (field, default) in enumerate(zip(fields, self._defaults, strict=True))
        )

    def spec(self) -> Any:
        return tuple(TensorSpec([], default.dtype) for default in self._defaults)


def fields_in(path: str, container: str, between: bytes, quotes: bool) -> Iterator[list[bytes]]:
    """The fields of the records of a file of CSV."""
    for record in records_of(raw_lines(path, container), between, quotes):
        yield fields_of(record, between, quotes)


def _default(given: Any) -> Tensor:
    """The default of a column. If only a dtype is given, it is an empty tensor, so the field is required."""
    if isinstance(given, (DType, str, type)) and not isinstance(given, bytes):
        try:
            return np.zeros(0, as_dtype(given).dtype).view(Tensor)
        except TypeError:
            pass
    return convert_to_tensor(given)


class CsvDataset(Dataset):
    r"""The records of CSV files, each a tuple of scalars.

    Args:
        filenames: a name, or several.
        record_defaults: for each column its type, if the field is required, or the value of an empty field.
        compression_type: "GZIP", "ZLIB" or None.
        buffer_size: ignored.
        header: whether the first line of each file has names.
        field_delim, use_quote_delim, na_value, select_cols: as for `tf.io.decode_csv`.
        exclude_cols: the columns not to read.

    Raises:
        InvalidArgumentError: when read: as `tf.io.decode_csv`.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.write_file("two.csv", "a,b\n1,x\n2,y\n")
        >>> rows = tf.data.experimental.CsvDataset("two.csv", [tf.int32, ""], header=True)
        >>> [(int(a), b.numpy()) for a, b in rows]
        [(1, b'x'), (2, b'y')]
    """

    def __init__(
        self,
        filenames: Any,
        record_defaults: Sequence[Any],
        compression_type: Any = None,
        buffer_size: Any = None,
        header: bool = False,
        field_delim: str = ",",
        use_quote_delim: bool = True,
        na_value: str = "",
        select_cols: Sequence[int] | None = None,
        exclude_cols: Sequence[int] | None = None,
    ) -> None:
        files = [name.decode() for name in names_of(filenames).reshape(-1).tolist()]
        columns = select_cols
        if exclude_cols is not None:
            every = range(len(record_defaults) + len(exclude_cols))
            columns = [c for c in every if c not in exclude_cols]
        self.op = _Csv(
            files,
            [_default(given) for given in record_defaults],
            container_of(compression_type),
            header,
            text_of(field_delim),
            use_quote_delim,
            text_of(na_value),
            columns,
        )


def make_csv_dataset(
    file_pattern: Any,
    batch_size: Any,
    column_names: Sequence[str] | None = None,
    column_defaults: Sequence[Any] | None = None,
    label_name: str | None = None,
    select_columns: Sequence[Any] | None = None,
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    header: bool = True,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: Any = None,
    prefetch_buffer_size: Any = None,
    num_parallel_reads: Any = None,
    sloppy: bool = False,
    num_rows_for_inference: int | None = 100,
    compression_type: Any = None,
    ignore_errors: bool = False,
    encoding: str = "utf-8",
) -> Any:
    """Batches of the records of CSV files, as ordered dicts of columns.

    Args:
        file_pattern: patterns of file names.
        batch_size: records of a batch.
        column_names: the names of all columns; None takes them from the first line.
        column_defaults: the type or default of each column; None infers them.
        label_name: the column of labels, which becomes the second component.
        select_columns: names or numbers of the columns to read.
        field_delim, use_quote_delim, na_value, compression_type: as for `CsvDataset`.
        header: whether the first line of each file has names.
        num_epochs: the number of passes; None: infinite.
        shuffle, shuffle_buffer_size, shuffle_seed: the order of the records.
        num_rows_for_inference: the number of lines from which types are inferred.
        prefetch_buffer_size, num_parallel_reads, sloppy, encoding: ignored.
        ignore_errors: leave out records that raise an error.

    Raises:
        ValueError: no file matches, or a column does not exist.
    """
    files = _files(file_pattern)
    between, missing = text_of(field_delim), text_of(na_value)
    container = container_of(compression_type)
    if column_names is None:
        if not header:
            raise ValueError("Cannot infer column names without a header line.")
        first = next(fields_in(files[0], container, between.encode(), use_quote_delim))
        column_names = [field.decode(encoding) for field in first]
    chosen = _chosen(select_columns, column_names)
    if column_defaults is None:
        rows = _rows(files, container, header, between, use_quote_delim, num_rows_for_inference)
        column_defaults = [_found_default([row[c] for row in rows], missing) for c in chosen]
    names = [column_names[c] for c in chosen]
    op = _Csv(
        files, [_default(d) for d in column_defaults], container, header, between, use_quote_delim,
        missing, chosen if select_columns is not None else None,
    )  # fmt: skip
    made = Base.of(op)
    made = made.ignore_errors() if ignore_errors else made
    made = made.shuffle(shuffle_buffer_size, shuffle_seed) if shuffle else made
    made = made.repeat(num_epochs).batch(batch_size, drop_remainder=num_epochs is None)
    return made.map(_by_name(names, label_name))


def _by_name(names: list[str], label_name: str | None) -> Callable[..., Any]:
    """The function that makes features, and a label if there is one, of the columns of a batch."""
    if label_name is not None and label_name not in names:
        raise ValueError("`label_name` provided must be one of the columns.")

    def named(*columns: Any) -> Any:
        features = OrderedDict(zip(names, columns, strict=True))
        if label_name is None:
            return features
        label = features.pop(label_name)
        return features, label

    return named


def _files(patterns: Any) -> list[str]:
    given = [name.decode() for name in names_of(patterns).reshape(-1).tolist()]
    found = sorted(path for pattern in given for path in matching(pattern))
    if not found:
        raise ValueError(f"No files match `file_pattern` {given}.")
    return found


def _chosen(select: Sequence[Any] | None, names: Sequence[str]) -> list[int]:
    if select is None:
        return list(range(len(names)))
    return sorted(c if isinstance(c, int) else list(names).index(c) for c in select)


def _rows(
    files: list[str], container: str, header: bool, between: str, quotes: bool, most: int | None
) -> list[list[bytes]]:
    """The first records of all files."""
    by_file = (fields_in(file, container, between.encode(), quotes) for file in files)
    rows = (row for records in by_file for row in islice(records, int(header), None))
    return list(islice(rows, most))


def _found_default(texts: list[bytes], missing: str) -> Tensor:
    """The default of a column, with the narrowest type that fits all its texts."""
    kinds = [_TYPES.index(_type_of(text)) for text in texts if text and text != missing.encode()]
    kind = as_dtype(_TYPES[max(kinds, default=0)])
    return np.array([b"" if kind is string else 0], kind.dtype).view(Tensor)


def _type_of(text: bytes) -> str:
    for name in _TYPES[:-1]:
        kind = as_dtype(name)
        try:
            value = number_of(text, kind)
        except InvalidArgumentError:
            continue
        if name != "float32" or np.isclose(np.float32(value), value, 1e-6, 0):
            return name
    return "string"
