"""`tf.lookup`: tables from keys to values, as dicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.arrays import tensor
from penstock.tf.dtypes import as_dtype, int64, string
from penstock.tf.errors import FailedPreconditionError, InvalidArgumentError
from penstock.tf.gfile import GFile
from penstock.tf.hashes import fingerprint64
from penstock.tf.missing import Space, absent_from
from penstock.tf.number_texts import number_of
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.sparse import SparseTensor
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.text_values import text_of

__all__ = [
    "KeyValueTensorInitializer",
    "StaticHashTable",
    "StaticVocabularyTable",
    "TextFileIndex",
    "TextFileInitializer",
    "experimental",
]


class TextFileIndex:
    """Which part of a line is a key or a value: the whole line, its number, or a column from 0."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


class KeyValueTensorInitializer:
    """The entries of a table, from two vectors."""

    def __init__(
        self,
        keys: Any,
        values: Any,
        key_dtype: Any = None,
        value_dtype: Any = None,
        name: str | None = None,
    ) -> None:
        self._keys = convert_to_tensor(keys, key_dtype)
        self._values = convert_to_tensor(values, value_dtype)
        self.key_dtype, self.value_dtype = self._keys.dtype, self._values.dtype

    def pairs(self) -> list[tuple[Any, Any]]:
        """The keys and values."""
        return list(zip(self._keys.tolist(), self._values.tolist(), strict=True))


class TextFileInitializer:
    """The entries of a table, from the lines of a file.

    Args:
        filename: the file.
        key_dtype, key_index, value_dtype, value_index: the type and the part of a line (`TextFileIndex`, or the
            number of a column) of keys and of values.
        vocab_size: read only this many lines.
        delimiter: the text between columns.
        name: ignored.
        value_index_offset: a number to add to line numbers.
    """

    def __init__(
        self,
        filename: Any,
        key_dtype: Any,
        key_index: int,
        value_dtype: Any,
        value_index: int,
        vocab_size: int | None = None,
        delimiter: str = "\t",
        name: str | None = None,
        value_index_offset: int = 0,
    ) -> None:
        self.key_dtype, self.value_dtype = as_dtype(key_dtype), as_dtype(value_dtype)
        self._file, self._most, self._delimiter = text_of(filename), vocab_size, delimiter
        self._parts = key_index, value_index
        self._offset = value_index_offset

    def pairs(self) -> list[tuple[Any, Any]]:
        """The keys and values.

        Raises:
            NotFoundError: there is no such file.
            InvalidArgumentError: a line without such a column, or text that is not a number.
        """
        with GFile(self._file, "rb") as file:
            lines = file.read().splitlines()
        key, value = self._parts
        return [
            (self._part(line, n, key, self.key_dtype), self._part(line, n, value, self.value_dtype))
            for n, line in enumerate(lines[: self._most])
        ]

    def _part(self, line: bytes, number: int, index: int, kind: Any) -> Any:
        if index == TextFileIndex.LINE_NUMBER:
            return number + self._offset
        if index == TextFileIndex.WHOLE_LINE:
            found = line
        else:
            columns = line.split(self._delimiter.encode())
            if index >= len(columns):
                raise InvalidArgumentError(
                    None, None, f"Invalid number of columns in {self._file} line {number} ({line!r}) : "
                    f"expected {index + 1} got {len(columns)}",
                )  # fmt: skip
            found = columns[index]
        return found if kind is string else number_of(found, kind)


class _Table:
    """A table that is looked up by keys."""

    def __init__(self, pairs: Any, key_dtype: Any, value_dtype: Any) -> None:
        self.key_dtype, self.value_dtype = as_dtype(key_dtype), as_dtype(value_dtype)
        self._found: dict[Any, Any] = dict(pairs)

    def _default(self, key: Any) -> Any:
        raise NotImplementedError

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of keys, in the same shape. Keys without an entry get the default.

        Raises:
            TypeError: keys of another type.
        """
        if isinstance(keys, RaggedTensor):
            return keys.with_flat_values(self.lookup(keys.flat_values))
        if isinstance(keys, SparseTensor):
            return keys.with_values(self.lookup(keys.values))
        given = convert_to_tensor(keys)
        if given.dtype != self.key_dtype and not self._takes(given):
            raise TypeError(
                f"Dtype of argument `keys` must be {self.key_dtype}, received: {given.dtype}"
            )
        made = np.empty(np.shape(given), self.value_dtype.dtype)
        flat, found = made.reshape(-1), self._found
        for place, key in enumerate(given.ravel().tolist()):
            flat[place] = found[key] if key in found else self._default(key)
        return made.view(Tensor)

    def _takes(self, keys: Tensor) -> bool:
        return not keys.size or (self.key_dtype.is_integer and keys.dtype.is_integer)

    __getitem__ = lookup

    def size(self, name: str | None = None) -> Tensor:
        """The number of keys, int64."""
        return tensor(np.array(len(self._found), np.int64))

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """All keys and values."""
        keys = np.array(list(self._found), self.key_dtype.dtype)
        return tensor(keys), tensor(np.array(list(self._found.values()), self.value_dtype.dtype))


class StaticHashTable(_Table):
    """A table that does not change.

    Args:
        initializer: its entries.
        default_value: the value of all other keys.
        name, experimental_is_anonymous: ignored.

    Raises:
        FailedPreconditionError: a key with two values.

    Example:
        >>> import penstock.tf as tf
        >>> entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
        >>> tf.lookup.StaticHashTable(entries, -1).lookup(tf.constant(["b", "c"])).numpy()
        array([ 2, -1], dtype=int32)
    """

    def __init__(
        self,
        initializer: Any,
        default_value: Any,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        pairs = initializer.pairs()
        super().__init__(pairs, initializer.key_dtype, initializer.value_dtype)
        _check_single(pairs, self._found)
        self.default_value = convert_to_tensor(default_value, self.value_dtype)

    def _default(self, key: Any) -> Any:
        return self.default_value.item()


def _check_single(pairs: Any, found: dict[Any, Any]) -> None:
    for key, value in pairs:
        if found[key] != value:
            raise FailedPreconditionError(
                None, None, f"HashTable has different value for same key. Key {key} has {value} and trying to add value {found[key]}",
            )  # fmt: skip


class StaticVocabularyTable(_Table):
    """A table from strings to numbers. Strings without an entry get a number by their hash.

    Args:
        initializer: its entries, with int64 values; None: all strings get a number by their hash.
        num_oov_buckets: how many numbers strings without an entry can get. They follow the numbers of the entries.
        lookup_key_dtype, name, experimental_is_anonymous: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> entries = tf.lookup.KeyValueTensorInitializer(["a"], tf.constant([0], tf.int64))
        >>> tf.lookup.StaticVocabularyTable(entries, 1).lookup(tf.constant(["a", "b"])).numpy()
        array([0, 1])
    """

    def __init__(
        self,
        initializer: Any,
        num_oov_buckets: int,
        lookup_key_dtype: Any = None,
        name: str | None = None,
        experimental_is_anonymous: bool = False,
    ) -> None:
        if num_oov_buckets <= 0:
            raise ValueError(
                f"`num_oov_buckets` must be > 0; use StaticHashTable. Got {num_oov_buckets}"
            )
        pairs = [] if initializer is None else initializer.pairs()
        key_dtype = lookup_key_dtype or (string if initializer is None else initializer.key_dtype)
        super().__init__(pairs, key_dtype, int64)
        self._buckets = num_oov_buckets

    def _default(self, key: Any) -> Any:
        text = key if isinstance(key, bytes) else str(key).encode()
        return len(self._found) + fingerprint64(text) % self._buckets

    def size(self, name: str | None = None) -> Tensor:
        """The number of keys and buckets, int64."""
        return tensor(np.array(len(self._found) + self._buckets, np.int64))


class _Mutable(_Table):
    def insert(self, keys: Any, values: Any, name: str | None = None) -> None:
        """Add entries, or replace them."""
        self._found.update(
            zip(
                convert_to_tensor(keys, self.key_dtype).ravel().tolist(),
                convert_to_tensor(values, self.value_dtype).ravel().tolist(),
                strict=True,
            )
        )

    insert_or_assign = insert

    def remove(self, keys: Any, name: str | None = None) -> None:
        """Remove entries."""
        for key in convert_to_tensor(keys).ravel().tolist():
            self._found.pop(key, None)

    erase = remove


class MutableHashTable(_Mutable):
    """A table that changes.

    Args:
        key_dtype, value_dtype: the dtypes of keys and values.
        default_value: the value of keys without an entry.
        name, checkpoint, experimental_is_anonymous: ignored.
    """

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        name: str = "MutableHashTable",
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        super().__init__((), key_dtype, value_dtype)
        self._fallback = convert_to_tensor(default_value, self.value_dtype).item()

    def _default(self, key: Any) -> Any:
        return self._fallback


class DenseHashTable(MutableHashTable):
    """Like `MutableHashTable`. The arguments for reserved keys have no effect."""

    def __init__(
        self,
        key_dtype: Any,
        value_dtype: Any,
        default_value: Any,
        empty_key: Any,
        deleted_key: Any,
        initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable",
        checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ) -> None:
        super().__init__(key_dtype, value_dtype, default_value)


experimental = Space(
    "tf.lookup.experimental", DenseHashTable=DenseHashTable, MutableHashTable=MutableHashTable
)

__getattr__ = absent_from("tf.lookup")
