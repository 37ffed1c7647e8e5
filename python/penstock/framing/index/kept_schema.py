"""The Arrow schema that a writer stores in the sidecar of a file whose format cannot hold it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.columns import kept_names
from penstock.columns.stored_schema import schema_of
from penstock.columns.types import own_types
from penstock.contract.format import Format, Options, Writer
from penstock.contract.opening import open_shard
from penstock.errors import PenstockError, StaleIndexError, raise_unless_damage, shown
from penstock.framing.index import ahead, opening, sidecar
from penstock.framing.index._sections import Facts
from penstock.framing.index.indexing import has_place
from penstock.framing.index.sampled import sample_of
from penstock.framing.index.sidecar import Index
from penstock.storage.base import Source, Storage
from penstock.storage.local import LocalStorage
from penstock.storage.urls import is_url


def to_bytes(schema: pa.Schema | None) -> bytes:
    """Serialize a schema for a sidecar, without the metadata of the schema itself; empty for None."""
    return b"" if schema is None else schema.remove_metadata().serialize().to_pybytes()


def from_bytes(data: bytes) -> pa.Schema | None:
    """Parse the output of `to_bytes`; None if it is invalid."""
    if not data:
        return None
    try:
        return own_types(schema_of(data))
    except (pa.ArrowException, ValueError, TypeError, KeyError, OSError, RecursionError):
        return None


def index_of_others(path: str, storage: Storage, schema: bytes, positions: bytes = b"") -> Index:
    """The content of the sidecar of a file that is not framed; for `positions` see the module of that name."""
    source = storage.source(path)
    try:
        size, sample = source.size, sample_of(source)
    finally:
        source.close()
    none = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
    return Index(
        0, size, size, "", *none, layout="none", schema=schema, sample=sample, positions=positions
    )


def of_written(kind: Format, schema: pa.Schema, options: Any) -> bytes:
    """The schema to store with files that are written with these options, without the class names: `finished` adds
    them."""
    return to_bytes(kind.kept_schema(kept_names.strip(schema), options))


def finished(kind: Format, kept: bytes, writer: Writer | None = None) -> bytes:
    """The schema to store with a written file, including the class names that its writer has seen."""
    schema = from_bytes(kept)
    if schema is None or kind.class_numbers is None:
        return kept
    known = None if writer is None else writer.dictionaries
    return to_bytes(kept_names.finished(schema, kind.class_numbers, known))


def with_names(kept: bytes, names: Mapping[str, kept_names.Names | None]) -> bytes:
    """The stored schema with the class names that a file had before."""
    schema = from_bytes(kept)
    if schema is None or not any(found is not None for found in names.values()):
        return kept
    return to_bytes(pa.schema([kept_names.named(f, names.get(f.name)) for f in schema]))


def of_files(
    paths: Sequence[str], storage: Storage, options: Options, opened: Callable[[Source], Any]
) -> pa.Schema | None:
    """The schema that all of these files were written with. None unless each has a sidecar that is valid for the
    current file, and all store the same schema (apart from class names).

    Args:
        options: options of the reader, with the place of sidecars.
        opened: returns the format of an open file.
    """
    found = b""
    for path in paths:
        kept = of_file(path, storage, options, opened)
        if not kept:
            return None
        found = kept if not found or kept == found else _in_common(found, kept)
        if not found:
            return None
    return from_bytes(found)


def _in_common(one: bytes, other: bytes) -> bytes:
    """The common schema of two files whose class names may differ; empty if anything else differs."""
    first, second = from_bytes(one), from_bytes(other)
    if first is None or second is None:
        return b""
    return to_bytes(kept_names.in_common(first, second))


def of_file(
    path: str, storage: Storage, options: Options, opened: Callable[[Source], Any]
) -> bytes:
    """The stored schema of a file; empty if no sidecar is valid for the current file."""
    return next(sections_of(path, storage, options, opened, "schema"), b"")


def sections_of(
    path: str, storage: Storage, options: Options, opened: Callable[[Source], Any], name: str
) -> Iterator[bytes]:
    """The named section of each sidecar that is valid for the current file. For the arguments see `of_files`."""
    if options.index == "never" or not (isinstance(storage, LocalStorage) or is_url(path)):
        return
    opening.begin([path], storage, options.index)
    doubtful: list[dict[str, bytes]] = []
    for kept_at in places_of(shown(path) if is_url(path) else path, options.index):
        with suppress(OSError, StaleIndexError):
            facts, kept = sidecar.load_sections(kept_at, storage, name, "sample")
            if not kept[name]:
                continue
            if is_untouched(path, kept_at, facts, partial(storage.identity, path)):
                yield kept[name]
            else:
                doubtful.append(kept)
    for kept in doubtful:
        if _is_of_changed(path, storage, options, opened, kept, name):
            yield kept[name]


def places_of(path: str, kept: str) -> Iterator[str]:
    """Where sidecars of a file may be. The last place is that of a sidecar that a killed writer left, if there is
    one."""
    for folder in sidecar.folders(kept):
        yield sidecar.path_for(path, folder)
    left = None if is_url(path) else ahead.left_of(path, sidecar.folders(kept)[0])
    if left is not None:
        yield left


def is_untouched(
    path: str, kept_at: str, facts: Facts, identity: Callable[[], tuple[int, int, int, int]]
) -> bool:
    """Whether sizes and times, or the state of an object, show that a file was not written to after its sidecar was
    written."""
    if is_url(path):
        return facts.state.is_known and facts.state == identity()
    told = os.stat(path)
    if told.st_size != facts.data_bytes:
        return False
    if facts.state.is_known:
        return facts.state == (told.st_ino, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
    return max(told.st_mtime_ns, told.st_ctime_ns) <= os.stat(kept_at).st_mtime_ns


def _is_of_changed(
    path: str,
    storage: Storage,
    options: Options,
    opened: Callable[[Source], Any],
    kept: dict[str, bytes],
    name: str,
) -> bool:
    """Whether a section is still valid for a file that was copied, moved or written to since. It is if the sidecar's
    sample or index matches the file."""
    source = storage.source(path)
    try:
        if kept["sample"]:
            return kept["sample"] == sample_of(source)
        if not has_place(source, options.index):
            return False
        reader: Any = open_shard(opened(source), source, Options(raw=True, index=options.index))
        return getattr(reader, "has_index", False) and getattr(reader.index, name) == kept[name]
    except PenstockError as error:
        raise_unless_damage(error)
        return False
    finally:
        source.close()


def joined(old: bytes, new: bytes) -> bytes:
    """The schema to store after records of another schema were appended: types that fit both; empty if there are
    none."""
    first, second = from_bytes(old), from_bytes(new)
    if first is None or second is None:
        return b""
    if old == new:
        return old
    if set(second.names) - set(first.names):
        # The other file may have a struct's fields as separate columns.
        first, second = (pa.schema(flattened(schema)) for schema in (first, second))
    if set(second.names) - set(first.names):
        return b""
    fields: list[pa.Field] = []
    for field in first:
        place = second.get_field_index(field.name)
        common = _common_field(field, None if place < 0 else second.field(place))
        if common is None:
            return b""
        fields.append(common)
    return to_bytes(pa.schema(fields))


def _common_field(field: pa.Field, other: Any) -> pa.Field | None:
    """A field whose type fits both; `other` is None if the other file does not have it."""
    if other is None:
        other = field.with_nullable(True)
    wanted = _common(field.type, other.type)
    if wanted is None:
        return None
    nullable = field.nullable or other.nullable
    names = _common_names(field, other) if pa.types.is_dictionary(wanted) else None
    return kept_names.named(field.with_type(wanted).with_nullable(nullable), names)


def _common_names(one: pa.Field, other: pa.Field) -> kept_names.Names | None:
    mine, its = kept_names.names_of(one), kept_names.names_of(other)
    if mine is None or its is None:
        return mine
    shorter, longer = sorted((mine, its), key=len)
    return longer if longer[: len(shorter)] == shorter else None


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if one == other or pa.types.is_null(other):
        return one
    both = (one, other)
    if all(map(pa.types.is_integer, both)):
        return pa.int64()
    if all(map(pa.types.is_floating, both)):
        return max(both, key=lambda type_: type_.bit_width)
    if all(map(pa.types.is_struct, both)):
        return _common_struct(one, other)
    if pa.types.is_dictionary(one) != pa.types.is_dictionary(other):
        # One file has class labels as numbers, the other plain numbers.
        numbers = other if pa.types.is_dictionary(one) else one
        if pa.types.is_integer(numbers) or pa.types.is_floating(numbers):
            return numbers
    return one if all(map(_is_text, both)) else None


def _common_struct(one: Any, other: Any) -> pa.DataType | None:
    if [field.name for field in one] != [field.name for field in other]:
        return None
    fields: list[pa.Field] = []
    for mine, its in zip(one, other, strict=True):
        wanted = _common(mine.type, its.type)
        if wanted is None:
            return None
        fields.append(mine.with_type(wanted).with_nullable(mine.nullable or its.nullable))
    return pa.struct(fields)


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return type_ in (pa.string(), pa.large_string(), pa.string_view())


def flattened(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Replace structs by their fields, named `parent/child`, at any depth."""
    found: list[pa.Field] = []
    for field in fields:
        if not pa.types.is_struct(field.type):
            found.append(field)
            continue
        inside = [field.type.field(n) for n in range(field.type.num_fields)]
        found += flattened(
            child.with_name(f"{field.name}/{child.name}").with_nullable(True) for child in inside
        )
    return found


def as_struct(field: pa.Field) -> pa.Field:
    """A struct as it reads back from a file that stores only its fields: a null struct becomes null fields."""
    return field.with_type(_with_missing(field.type, is_missing=field.nullable))


def _with_missing(type_: Any, *, is_missing: bool) -> pa.DataType:
    if not pa.types.is_struct(type_):
        return type_
    fields: list[pa.Field] = []
    for child in type_:
        nullable = child.nullable or is_missing
        inner = _with_missing(child.type, is_missing=nullable)
        fields.append(child.with_type(inner).with_nullable(nullable))
    return pa.struct(fields)


def with_numbers(field: pa.Field, numbers: pa.DataType) -> pa.Field:
    """Replace a dictionary field by its numbers unless it is a class label, whose names are stored."""
    is_lost = pa.types.is_dictionary(field.type) and not kept_names.is_label(field.type)
    return field.with_type(numbers) if is_lost else field


def without_doubles(field: pa.Field) -> pa.Field:
    """A field with float64 values replaced by float32."""
    return field.with_type(_single(field.type))


def _single(type_: pa.DataType) -> pa.DataType:
    if isinstance(type_, pa.FixedShapeTensorType):
        inner = _single(type_.value_type)
        return pa.fixed_shape_tensor(
            inner, type_.shape, dim_names=type_.dim_names, permutation=type_.permutation
        )
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(type_.value_field.with_type(_single(type_.value_type)), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(type_.value_field.with_type(_single(type_.value_type)))
    if pa.types.is_struct(type_):
        inside = [type_.field(n) for n in range(type_.num_fields)]
        return pa.struct([child.with_type(_single(child.type)) for child in inside])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_single(type_.value_type)))
    return pa.float32() if type_ == pa.float64() else type_
