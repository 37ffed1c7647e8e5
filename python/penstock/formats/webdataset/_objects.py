"""Decodes members that hold several named values (npz archives, MessagePack and CBOR maps) to struct columns.

The fields and types of a column are inferred from the first records, as for a whole file of such values. These stay
bytes: values that are not maps, maps for which Arrow has no type, object arrays (nothing is ever unpickled), and CBOR
if cbor2 is not installed (`pip install 'penstock[webdataset]'`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.errors import FormatError, LimitError, PenstockError, SchemaError
from penstock.formats.msgpack.columns import inferred_field, plan_reading
from penstock.formats.msgpack.format import MapDecoder
from penstock.formats.npz.members import inflated
from penstock.formats.npz.zip_directory import Member, read_directory
from penstock.formats.numpy.npy_header import FIRST_BYTES
from penstock.formats.webdataset._npy import column as npy_column
from penstock.formats.webdataset._npy import header_of, type_of
from penstock.limits import Limits
from penstock.storage.base import Source

NPZ = ("npz",)
MESSAGE_PACK = ("mp", "msg", "msgpack")
CBOR = ("cbor",)
_MOST_LEVELS = Limits().nesting
OBJECTS = (*NPZ, *MESSAGE_PACK, *CBOR)


def type_of_objects(last: str, samples: Any) -> Any:
    """Return the type of a column, inferred from its first values (binary, without nulls)."""
    limits = Limits()
    try:
        if last in NPZ:
            return _npz_type(_sound(lambda data: _arrays(data, limits, fronts=True), samples))
        if last in MESSAGE_PACK:
            return _message_type(samples, limits)
        return _cbor_type(samples)
    except (PenstockError, _core.KernelError, pa.ArrowException, ValueError):
        return pa.binary()  # the values do not have the format that the field's name implies


def _sound(read: Callable[[bytes], Any], samples: Any) -> list[Any]:
    """Return the samples that can be read. Damaged samples are skipped, because they show nothing about the others."""
    found: list[Any] = []
    for data in samples.to_pylist():
        with suppress(FormatError, ValueError):
            found.append(read(data))
    return found


def column_of_objects(
    last: str, values: Any, type_: Any, limits: Limits, exact: bool = False
) -> Any:
    """Convert the values of a field (binary; nulls stay nulls) to a struct column of this type. With `exact`, rounding
    a float is an error. Raise SchemaError or FormatError, which name the row, for a value that does not have its format
    or does not fit the type."""
    there = values.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(there)
    full = values.drop_null()
    made = {NPZ: _npz_column, MESSAGE_PACK: _message_column, CBOR: _cbor_column}
    kind = next(names for names in made if last in names)
    try:
        found = made[kind](full, type_, limits, exact)
    except (FormatError, SchemaError) as error:
        if error.record is not None:
            error.record = int(rows[error.record])
        raise
    if len(rows) == len(values):
        return found
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


# -- npz ------------------------------------------------------------------------------------------


class _Bytes(Source):
    """The bytes of a member, as a source for an npz archive."""

    path = "npz member"

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, length: int) -> _core.Buffer:
        return _core.Buffer.from_bytes(self._data[start : start + length])


def _arrays(data: bytes, limits: Limits, *, fronts: bool = False) -> dict[str, bytes]:
    """Return the npy files in an npz file by name; with `fronts`, only their first bytes."""
    source = _Bytes(data)
    found: dict[str, bytes] = {}
    room = limits.member_bytes
    for member in read_directory(source, limits).members:
        room -= member.plain_bytes
        limits.check("member_bytes", limits.member_bytes - room)
        name = member.name.removesuffix(".npy")
        found[name] = _front(source, member) if fronts else _contents(source, member)
    return found


def _front(source: _Bytes, member: Member) -> bytes:
    if not member.method:
        return source.read(member.start, min(member.plain_bytes, FIRST_BYTES)).to_bytes()
    return bytes(next(inflated(source, member), b"")[:FIRST_BYTES])


def _contents(source: _Bytes, member: Member) -> bytes:
    if not member.method:
        return source.read(member.start, member.plain_bytes).to_bytes()
    return b"".join(bytes(part) for part in inflated(source, member))


def _npz_type(samples: list[dict[str, bytes]]) -> Any:
    if not samples:
        return pa.binary()
    names = list(dict.fromkeys(name for sample in samples for name in sample))
    types = [
        type_of([header_of(sample[name]) for sample in samples if name in sample]) for name in names
    ]
    return pa.struct(list(zip(names, types, strict=True)))


def _npz_column(values: Any, type_: Any, limits: Limits, exact: bool) -> Any:
    rows: list[dict[str, bytes]] = []
    total = 0
    for row, data in enumerate(values.to_pylist()):
        try:
            rows.append(_arrays(data, limits))
        except LimitError as error:
            raise error.at(record=row) from None
        except PenstockError as error:
            raise FormatError(f"not an npz file: {error.message}", record=row) from None
        total += sum(len(array) for array in rows[-1].values())
        limits.check_batch(total)
    children: list[Any] = []
    for field in type_:
        column = pa.array([row.get(field.name) for row in rows], pa.binary())
        as_it_is = pa.types.is_binary(field.type)
        children.append(column if as_it_is else npy_column(column, field.type, exact))
    return pa.StructArray.from_arrays(children, fields=list(type_))


# -- MessagePack ----------------------------------------------------------------------------------


def _frames(values: Any) -> _core.Frames:
    framed = _core.frame_values(values)
    return _core.walk("msgpack", framed.data, 0, 1 << 62)[0]


def _message_type(samples: Any, limits: Limits) -> Any:
    facts = _core.MsgpackFacts()
    for data in samples.to_pylist():
        with suppress(_core.KernelError):  # a damaged sample shows nothing about the others
            facts.see(_frames(pa.array([data], pa.binary())), limits.nesting)
    columns = facts.columns()
    if columns is None or not len(samples):
        return pa.binary()
    return pa.struct([inferred_field(field) for field in pa.record_batch(columns).schema])


def _message_column(values: Any, type_: Any, limits: Limits, exact: bool) -> Any:
    decoder = MapDecoder([plan_reading(field, exact=exact) for field in type_], limits)
    try:
        batch = decoder.decode(_frames(values), None)
    except _core.KernelError as error:
        fault = error.args[0]
        kind = SchemaError if fault.kind == "schema" else FormatError
        raise kind(fault.message, record=fault.record) from None
    return pa.StructArray.from_arrays(batch.columns, fields=list(type_))


# -- CBOR -----------------------------------------------------------------------------------------


def _cbor2() -> Any:
    try:
        import cbor2
    except ImportError:
        return None
    return cbor2


def _cbor_type(samples: Any) -> Any:
    cbor2 = _cbor2()
    values = [] if cbor2 is None else _sound(lambda data: _loaded(cbor2, data), samples)
    if not values or not all(isinstance(value, dict) for value in values):
        return pa.binary()
    type_ = pa.array(values).type
    return type_ if pa.types.is_struct(type_) else pa.binary()


def _cbor_column(values: Any, type_: Any, limits: Limits, exact: bool) -> Any:
    del limits, exact  # CBOR gives only float64
    cbor2 = _cbor2()
    if cbor2 is None:
        raise SchemaError("CBOR needs cbor2", hint="pip install 'penstock[webdataset]'")
    found: list[Any] = []
    for row, data in enumerate(values.to_pylist()):
        try:
            found.append(_loaded(cbor2, data))
        except ValueError as error:
            raise FormatError(f"not a CBOR value: {error}", record=row) from None
    return pa.array(found, type_)


def _loaded(cbor2: Any, data: bytes) -> Any:
    """Decode one value. Raise ValueError if it is not valid."""
    known = (cbor2.CBORError, TypeError, OverflowError, EOFError, RecursionError, MemoryError)
    try:
        value = cbor2.loads(data)
    except known as error:
        raise ValueError(str(error) or type(error).__name__) from None
    _check_tree(value, len(data))
    return value


def _check_tree(value: Any, most: int) -> None:
    """Raise ValueError unless a value is a finite tree. CBOR values can refer to other values, even to values that
    contain them, and pyarrow would follow such references forever. Without references there are at most as many values
    as bytes."""
    level, count = [value], 0
    for _ in range(_MOST_LEVELS):
        count += len(level)
        if count > most:
            raise ValueError("its values contain each other")
        below: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                below += [*one.keys(), *one.values()]  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(one, (list, tuple, set, frozenset)):
                below += one
            if count + len(below) > most:
                raise ValueError("its values contain each other")
        if not below:
            return
        level = below
    raise ValueError(f"values nested more than {_MOST_LEVELS} levels deep")
