"""Gives each class name one number that stays the same for the whole life of a loader.

Arrow stores class labels as a dictionary column: each batch has its own list of names, and a label's number depends
on the row group, file or message it comes from. A loader therefore has one list of names for each such column, and
converts every batch to the numbers of that list. The list is

1. the one in `class_names=`; or
2. the lists that the files store for all their records (`FormatInfo.whole_dictionaries`: the folders of
   images, the `#names` of an npz, the enum of an HDF5 dataset), joined in file order; or
3. the names of the dictionaries that are found by reading that column once, in their order: those of the first
   dictionary, then the new ones of the next. Formats without dictionaries, and text, make them of the names in the
   order in which they first occur. The indexes of the files keep the names of each shard, so that a later pass reads
   only the shards whose index has none.

A column is named by its path: `label`, or `objects.kind` for a field of a struct or of structs in a list. A
dictionary of more than `MOST_NAMES` names is treated as text rather than classes. A dictionary of values other than
text (numbers, times) is replaced by its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import formats
from penstock.columns.kept_names import names_of
from penstock.columns.numbers import as_arrow, as_booleans, as_texts
from penstock.columns.types import is_bytes, is_text
from penstock.contract.format import Reader, SkippedRegion
from penstock.datasets.dataset import Dataset
from penstock.datasets.files import Files
from penstock.datasets.scan import shard_batches
from penstock.errors import SchemaError, UnsupportedError
from penstock.framing.index.kept_classes import MOST_NAMES, Names
from penstock.framing.read.framed import FramedReader
from penstock.loader import _kept_names as kept_names
from penstock.loader._columns import list_parts, of_record
from penstock.loader._padding import has_offsets
from penstock.loader._sources import Records, names_of_numbers
from penstock.storage.local import LocalStorage

Lists = dict[str, Names | None]
"""The names of each column, by path. None if there are too many names, or the values are not text."""


def _as_texts(names: Names, path: str) -> pa.Array:
    try:
        return as_texts(names)
    except UnicodeEncodeError:
        message = "the names of its classes are bytes that are not UTF-8"
        raise SchemaError(message, field=path, hint="leave it out: columns=[...]") from None


class ClassNames:
    """The class names of every label column of a loader. `apply` renumbers a batch to match them."""

    def __init__(self, source: Records, given: Mapping[str, Sequence[str]] | None) -> None:
        places = [(f.name, *place) for f in source.schema for place in _paths(f.name, f.type)]
        chosen = _checked(given, {path: type_ for _, path, type_ in places})
        self.lists: Lists = {}
        for column, path, type_ in places:
            if path in chosen:
                self.lists[path] = chosen[path]
            elif pa.types.is_dictionary(type_):
                self.lists[path] = _found(source, column, path, type_)
        self._columns = {column for column, path, _ in places if path in self.lists}
        self._numbers = {
            path: {name: number for number, name in enumerate(names)}
            for path, names in self.known.items()
        }
        self._stored = {path: _as_texts(names, path) for path, names in self.known.items()}

    @property
    def known(self) -> dict[str, Names]:
        """The lists of names, by path."""
        return {path: names for path, names in self.lists.items() if names is not None}

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert the class labels of a batch to the numbers (int64) and dictionaries of these lists. An unknown name is
        a SchemaError whose `record` is the row in the batch."""
        if not self._columns:
            return batch
        columns: list[pa.Array] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                columns.append(self._mapped(column, name) if name in self._columns else column)
            except SchemaError as error:
                raise error.at(field=name) from None
        fields = [
            field if field.type == column.type else field.with_type(column.type)
            for field, column in zip(batch.schema, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, batch.schema.metadata))

    def _mapped(self, array: Any, path: str) -> Any:
        type_ = array.type
        if isinstance(type_, pa.BaseExtensionType):
            return self._mapped(array.storage, path)
        if pa.types.is_struct(type_):
            parts = [
                self._mapped(part, f"{path}.{field.name}")
                for field, part in zip(type_, array.flatten(), strict=True)
            ]
            mask = array.is_null() if array.null_count else None
            fields = [pa.field(f.name, p.type) for f, p in zip(type_, parts, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
        if _is_list(type_):
            return self._mapped_list(array, path)
        if path not in self.lists:
            return array
        if self.lists[path] is None:
            return array.dictionary_decode()
        return self._numbered(array, path)

    def _mapped_list(self, array: Any, path: str) -> Any:
        starts, values = list_parts(array)
        try:
            values = self._mapped(values, path)
        except SchemaError as error:
            raise of_record(error, starts) from None
        if pa.types.is_fixed_size_list(array.type):
            return pa.FixedSizeListArray.from_arrays(values, array.type.list_size)
        mask = array.is_null() if array.null_count else None
        return pa.LargeListArray.from_arrays(as_arrow(starts), values, mask=mask)

    def _numbered(self, array: Any, path: str) -> Any:
        if not pa.types.is_dictionary(array.type):
            array = _plain(array).dictionary_encode()
        elif len(array.dictionary) > len(array):
            # A large dictionary: reduce it to the names that this batch uses.
            array = _plain(array.dictionary_decode()).dictionary_encode()
        numbers = self._numbers[path]
        found = [numbers.get(_text(name)) for name in array.dictionary.to_pylist()]
        values = np.array([0 if number is None else number for number in found], np.int64)
        is_known = as_booleans(np.array([number is not None for number in found], bool))
        buffers = [is_known.buffers()[1], pa.py_buffer(values)]
        codes = pa.Array.from_buffers(pa.int64(), len(found), buffers).take(array.indices)
        if codes.null_count != array.indices.null_count:
            self._check_known(array, codes, path)
        return pa.DictionaryArray.from_arrays(codes, self._stored[path], safe=False)

    def _check_known(self, array: Any, codes: pa.Array, path: str) -> None:
        """Raise SchemaError for the first name that is not in the list. A missing label is not an error."""
        is_name = np.asarray(array.dictionary.take(array.indices).is_valid())
        unknown = np.flatnonzero(is_name & np.asarray(codes.is_null()))
        if len(unknown):
            place = int(unknown[0])
            name = _text(array[place].as_py())
            raise SchemaError(
                f"{name!r} is not one of the loader's {len(self._numbers[path])} class names",
                record=place,
                field=path,
                hint=f"class_names={{{path!r}: [...]}} with all names",
            )


def _checked(given: Any, types: Mapping[str, pa.DataType]) -> dict[str, Names]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"class_names is a dict, {{column: [names]}}, not {given!r}")
    found: dict[str, Names] = {}
    for path, names in (given or {}).items():
        found[path] = _as_list(path, names)
        if path not in types:
            raise SchemaError(f"no such column for class_names=; {_known(types)}", field=path)
        if not _is_names(types[path]):
            raise SchemaError(
                "class_names= is for columns of text, and this column has values of another type",
                field=path,
                found=types[path],
                hint=names_of_numbers(path) if pa.types.is_integer(types[path]) else None,
            )
    return found


def _as_list(path: str, names: Any) -> Names:
    listed = None if isinstance(names, (str, bytes)) else list(names)
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise TypeError(f"class_names of {path!r} is a list of names, not {names!r}")
    if len(set(listed)) < len(listed):
        twice = next(name for name in listed if listed.count(name) > 1)
        raise ValueError(f"class_names of {path!r} has {twice!r} twice")
    return tuple(listed)


def _is_list(type_: Any) -> bool:
    """Whether values are lists, which become arrays. Maps are not: they become Python values."""
    return has_offsets(type_) or pa.types.is_fixed_size_list(type_)


def _known(paths: Mapping[str, pa.DataType]) -> str:
    named = [path for path, type_ in paths.items() if _is_names(type_)]
    return f"columns of text: {', '.join(named)}" if named else "no column has text"


def _paths(path: str, type_: Any) -> Iterator[tuple[str, pa.DataType]]:
    """The paths within a column, with the types of their values. The module's docstring defines paths."""
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_struct(type_):
        for field in type_:
            yield from _paths(f"{path}.{field.name}", field.type)
    elif _is_list(type_):
        yield from _paths(path, type_.value_type)
    else:
        yield path, type_


def _is_names(type_: Any) -> bool:
    values = type_.value_type if pa.types.is_dictionary(type_) else type_
    return is_text(values) or is_bytes(values)


def _plain(array: pa.Array) -> pa.Array:
    """Convert view types to plain ones, because pyarrow cannot dictionary-encode views."""
    plain = {pa.binary_view(): pa.large_binary(), pa.string_view(): pa.large_string()}
    return array.cast(plain[array.type]) if array.type in plain else array


def _text(name: Any) -> Any:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


# -- the names found in the data ------------------------------------------------------------------


def _found(source: Records, column: str, path: str, type_: pa.DataType) -> Names | None:
    """One list for all datasets, in their order; None if the values are not text."""
    if not _is_names(type_):
        return None
    return _joined([_names_in(dataset, column, path) for dataset in source.datasets])


def _joined(lists: Sequence[Names | None]) -> Names | None:
    if any(names is None for names in lists):
        return None
    joined = tuple(dict.fromkeys(name for names in lists for name in names or ()))
    return joined if len(joined) <= MOST_NAMES else None


def _names_in(dataset: Dataset, column: str, path: str) -> Names | None:
    if path not in dataset.class_names:
        # It may be text in this dataset, and labels in another one.
        is_plain = path == column and is_text(dataset.schema.field(column).type)
        listed = None if is_plain else _listed(dataset, column, path)
        dataset.class_names[path] = _read(dataset, column, path) if listed is None else listed
    return dataset.class_names[path]


def _listed(dataset: Dataset, column: str, path: str) -> Names | None:
    """The names that the files store for all their records; None unless every file stores them."""
    files = dataset.files
    if dataset.options.schema is not None:
        return None  # a cast column has only the names of its batch
    shards = range(len(dataset.paths))
    if files.types == "kept" and path == column and not files.is_added(column):
        kinds = (formats.by_name(files.format_name(shard)) for shard in shards)
        if all(kind.class_numbers is not None for kind in kinds):
            return names_of(dataset.schema.field(column))
    if not all(_lists_all(files, shard, column) for shard in shards):
        return None
    return _joined([_listed_in(files.reader(shard), column, path) for shard in shards])


def _lists_all(files: Files, shard: int, column: str) -> bool:
    listed = files.info(shard).whole_dictionaries
    is_listed = (listed == ("*",) or column in listed) and not files.is_added(column)
    return is_listed and column in files.own(shard).schema.names


def _listed_in(reader: Reader, column: str, path: str) -> Names:
    if not reader.num_records:
        return ()
    batches = [
        reader.decode(chunk, some, [column]) for chunk, some in reader.pick(np.zeros(1, np.int64))
    ]
    labels = [one for batch in batches for one in _labels_in(batch.column(0), column, path)]
    return tuple(_text(name) for one in labels for name in one.dictionary.drop_null().to_pylist())


def _read(dataset: Dataset, column: str, path: str) -> Names | None:
    """The names in the order of the stored dictionaries, from the indexes of the shards. The column is read only in
    shards whose index has no names."""
    found = kept_names.known(dataset, column, path)
    shards = [shard for shard in range(len(dataset.paths)) if shard not in found]
    if shards and _joined(list(found.values())) is not None:
        _check_may_read(dataset, path)
        by_shard = _ByShard(shards)
        # Damage is not reported here but when the loop reaches it.
        skipped: list[SkippedRegion] = []
        read = shard_batches(dataset, [column], None, shards, skipped.append)
        by_shard.read(read, column, path)
        if not skipped:
            kept_names.keep(dataset, column, path, by_shard.found)
        found = {**found, **by_shard.found}
        if by_shard.is_cut:
            return None
    return _joined([found[shard] for shard in sorted(found)])


def _check_may_read(dataset: Dataset, path: str) -> None:
    if isinstance(dataset.files.storage, LocalStorage):
        return
    for reader in dataset.files.own_readers():
        if isinstance(reader, FramedReader) and not reader.has_index:
            raise UnsupportedError(
                "the class names are not known, and finding them would read all records from another machine",
                field=path,
                hint=f"class_names={{{path!r}: [...]}}, or columns= without it",
            )


class _ByShard:
    def __init__(self, shards: Sequence[int]) -> None:
        self._shards = list(shards)
        self._names: dict[int, dict[str, None]] = {}
        self.is_cut = False
        """Whether the pass stopped early because there were too many names."""

    def read(self, batches: Iterator[tuple[int, pa.RecordBatch]], column: str, path: str) -> None:
        every: dict[str, None] = {}
        for shard, batch in batches:
            names = self._names.setdefault(shard, {})
            for labels in _labels_in(batch.column(0), column, path):
                new = dict.fromkeys(map(_text, _stored_names(labels).drop_null().to_pylist()))
                names.update(new)
                every.update(new)
            if len(every) > MOST_NAMES:
                self.is_cut = True
                self._shards = self._shards[: self._shards.index(shard) + 1]
                if len(names) <= MOST_NAMES:
                    self._shards.pop()  # the rest of this shard may have more names
                return

    @property
    def found(self) -> dict[int, Names | None]:
        """The names of each shard that was read completely; None for a shard with too many names."""
        found = {shard: tuple(self._names.get(shard, ())) for shard in self._shards}
        return {
            shard: names if len(names) <= MOST_NAMES else None for shard, names in found.items()
        }


def _stored_names(labels: Any) -> Any:
    """The names of a dictionary in its order, which is that of `cat.codes` in pandas; of a very large one, only those
    that are used."""
    names = labels.dictionary
    if len(names) <= MOST_NAMES:
        return names
    return names.take(labels.indices.drop_null().unique().sort())


def _labels_in(array: Any, at: str, path: str) -> Iterator[Any]:
    """The labels at `path`, found in `array`, which is at path `at`."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_struct(array.type):
        for field, part in zip(array.type, array.flatten(), strict=True):
            yield from _labels_in(part, f"{at}.{field.name}", path)
    elif _is_list(array.type):
        yield from _labels_in(array.flatten(), at, path)
    elif at == path:
        yield array if pa.types.is_dictionary(array.type) else _plain(array).dictionary_encode()
