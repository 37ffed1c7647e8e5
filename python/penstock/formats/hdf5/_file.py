"""The datasets of an HDF5 file. They are found without opening other files, and checked before their values are read.

Only hard links are followed. These are errors: an external link, a dataset whose values are in other files (external
storage, virtual datasets), and a dataset that needs a filter from a plug-in. A soft link is skipped, because its target
is found under its own name if it is in this file.

libhdf5 reads the file through `_Guarded`, which checks each heap of texts and lists: some broken heaps would make
libhdf5 loop forever. Names are listed in stored order. For any other order libhdf5 builds a table, and if a broken file
ends early, it frees uninitialized entries of that table.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import struct
from base64 import b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.errors import (
    FormatError,
    LimitError,
    PenstockError,
    TruncatedError,
    UnsupportedError,
)
from penstock.limits import Limits
from penstock.storage.base import Source
from penstock.storage.local import LocalSource
from penstock.storage.pyarrow_files import PositionedFile

SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BUILT_IN = ("gzip", "shuffle", "fletcher32", "szip", "nbit", "scaleoffset")
FILTERS = {**dict(enumerate(_BUILT_IN, 1)), 32000: "lzf"}
"""The filters that are part of libhdf5 and h5py. Any other filter would be loaded from a library."""
MOST_DATASETS = 1 << 16
MOST_PIECES = 1 << 16
"""One record may be divided among at most this many chunks, or as many as the file has bytes if that is more. The
file's size alone is no limit, because chunks that were never written take no bytes."""
MOST_ATTRIBUTES = 256
MOST_ATTRIBUTE_BYTES = 1 << 16
_CACHE_BYTES = 4 << 20
_IN_WRITING = 0x05
"""Flags of a superblock: the file is open for writing, or for writing while others read it."""
_HEAP = b"GCOL\1"
"""The first bytes of a heap of texts and lists."""
_OBJECT_HEAD = 16
_OBJECTS = {n: struct.Struct(f"<H6x{kind}") for n, kind in ((2, "H"), (4, "I"), (8, "Q"))}
"""The head of an object in a heap (its number and length), by the bytes of a length."""
_EXPANSION = 1100
"""The maximum bytes of values per byte of the file: deflate's best, with a margin."""


def h5py_or_error() -> Any:
    """Return the module h5py. Raise UnsupportedError if it is not installed."""
    try:
        import h5py
    except ImportError as error:
        raise UnsupportedError(
            f"HDF5 needs h5py, which cannot be imported: {error}",
            hint="pip install 'penstock[hdf5]'",
        ) from error
    return h5py


@contextmanager
def translated(path: str) -> Generator[None, None, None]:
    """Convert the errors that h5py raises for a file to penstock's errors."""
    try:
        yield
    except PenstockError as error:
        raise error.at(file=path) from error.__cause__
    except MemoryError as error:
        raise LimitError(f"the file needs more memory than there is: {error}", file=path) from error
    except OSError as error:
        if error.errno is not None:
            raise
        kind = TruncatedError if "truncated" in str(error) else FormatError
        raise kind(f"libhdf5 cannot read this: {error}", file=path) from error
    except (ValueError, KeyError, IndexError, TypeError, RuntimeError, OverflowError) as error:
        if isinstance(error, NotImplementedError):
            raise UnsupportedError(f"h5py cannot read this: {error}", file=path) from error
        raise FormatError(f"libhdf5 cannot read this: {error}", file=path) from error


class _Guarded(PositionedFile):
    """A source as the file that libhdf5 reads. Raises an error if libhdf5 would loop forever."""

    lengths = 8
    """The bytes of a length in this file."""

    def readinto(self, into: memoryview) -> int:
        at = self.tell()
        data = self.read(len(into))
        into[: len(data)] = data
        if data.startswith(_HEAP) and self._is_broken(at, data):
            raise FormatError("texts or lists are not contiguous", byte=at)
        return len(data)

    def _is_broken(self, at: int, data: bytes) -> bool:
        """Whether the objects of a heap are not contiguous. Object 0 is free space, whose size includes its head."""
        size = int.from_bytes(data[8 : 8 + self.lengths], "little")
        if len(data) < size <= self._source.size - at:
            data = self._source.read(at, size).to_bytes()
        size = min(size, len(data))
        head = _OBJECTS[self.lengths].unpack_from
        place = _OBJECT_HEAD
        while place <= size - _OBJECT_HEAD:
            number, length = head(data, place)
            if number:
                length = _OBJECT_HEAD + (length + 7 & ~7)
            if length < _OBJECT_HEAD:
                return True
            place += length
        return place > size


def open_file(source: Source) -> Any:
    """Open a file with h5py. The file must be closed before Python exits, because libhdf5 would read its bytes
    afterwards."""
    h5py = h5py_or_error()
    with translated(source.path):
        if isinstance(source, LocalSource):
            _check_no_writer(source.path)
        guarded = _Guarded(source)
        file = h5py.File(guarded, "r", rdcc_nbytes=_CACHE_BYTES)
        try:
            guarded.lengths = file.id.get_create_plist().get_sizes()[1]
            _check_superblock(source, file, guarded.lengths)
        except BaseException:
            file.close()
            raise
        return file


def _check_superblock(source: Source, file: Any, lengths: int) -> None:
    if lengths not in _OBJECTS:
        raise UnsupportedError(f"lengths of {lengths} bytes are not supported")
    expected, found = f"{file.id.get_filesize()} bytes", f"{source.size} bytes"
    if file.id.get_filesize() > source.size:
        raise TruncatedError(
            "the file is truncated", byte=source.size, expected=expected, found=found
        )
    block = source.read(file.userblock_size, 12).to_bytes()
    if block[8] >= 3 and block[11] & _IN_WRITING:
        raise FormatError(
            "the file is marked as being written: a program is writing it, or died while writing it",
            hint="if no program is writing it, run h5clear -s FILE",
        )


def _check_no_writer(path: str) -> None:
    """Raise an error if libhdf5 holds the lock of a writer. To find out, this function takes a lock, and releases it
    immediately, so that others, including penstock, can replace or extend the file."""
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        return
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno, "another program is writing this file", path
            ) from None
        except OSError:
            pass  # the file system may not support locks


@dataclass(frozen=True, slots=True)
class Found:
    """One dataset: its handle in h5py, and facts from its header."""

    name: str
    id: Any
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    chunk: tuple[int, ...] | None
    filters: tuple[str, ...]
    user_block: bool
    """Whether file offsets count from the end of a user block."""

    @property
    def record_bytes(self) -> int:
        """The bytes of one record, without texts and lists of varying length."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def datasets(
    file: Any, chosen: tuple[str, ...] | None, limits: Limits, size: int, group: Any = None
) -> tuple[list[Found], list[Found]]:
    """Return the datasets of a file, or of a group in it, that have an axis, and those that have none."""
    start = file.id if group is None else group
    tables: list[Found] = []
    single: list[Found] = []
    for count, (name, handle) in enumerate(_named(start, "", chosen, limits.nesting, set())):
        if count >= MOST_DATASETS:
            raise LimitError(f"the file has more than {MOST_DATASETS} datasets")
        try:
            found = _checked(name, handle, limits, size, file.userblock_size > 0)
        except PenstockError as error:
            raise error.at(field=name) from None
        if found is not None:
            (tables if found.shape else single).append(found)
    return tables, single


def _named(
    group: Any, prefix: str, chosen: tuple[str, ...] | None, levels: int, seen: set[Any]
) -> Iterator[tuple[str, Any]]:
    """Yield (name, handle) of the datasets in a group. Names are paths joined by "/", sorted in each group."""
    h5py = h5py_or_error()
    if levels < 0:
        raise LimitError("the groups are nested too deep", field=prefix)
    place = h5py.h5o.get_info(group)
    if (place.fileno, place.addr) in seen:
        return  # the group contains itself, or has two names
    seen.add((place.fileno, place.addr))
    names: list[bytes] = []
    group.links.iterate(names.append, order=h5py.h5.ITER_NATIVE)
    for raw in sorted(names):
        text = raw.decode("utf-8", "surrogateescape")
        name = f"{prefix}/{text}" if prefix else text
        if not _is_wanted(name, chosen):
            continue
        try:
            name.encode()
        except UnicodeEncodeError:
            raise FormatError("a name is not UTF-8", found=raw) from None
        kind = group.links.get_info(raw).type
        if kind == h5py.h5l.TYPE_SOFT:
            continue
        if kind != h5py.h5l.TYPE_HARD:
            raise UnsupportedError(
                "this is an external link to another file, which penstock does not open",
                field=name,
                hint="choose what to read with datasets=, or put the data into this file",
            )
        handle = h5py.h5o.open(group, raw)
        if isinstance(handle, h5py.h5g.GroupID):
            yield from _named(handle, name, chosen, levels - 1, seen)
        elif isinstance(handle, h5py.h5d.DatasetID):
            yield name, handle


def _is_wanted(name: str, chosen: tuple[str, ...] | None) -> bool:
    """Whether a name was chosen, is in a chosen group, or is a group of a chosen name."""
    return chosen is None or any(
        f"{name}/".startswith(f"{one}/") or one.startswith(f"{name}/") for one in chosen
    )


def _checked(name: str, handle: Any, limits: Limits, size: int, user_block: bool) -> Found | None:
    """Return a dataset that may be read, or None if it has no shape. The order of the checks matters: nothing here may
    make libhdf5 open another file, so the check for values in other files comes first."""
    h5py = h5py_or_error()
    plan = handle.get_create_plist()
    layout = plan.get_layout()
    if layout == h5py.h5d.VIRTUAL or plan.get_external_count():
        what = "a virtual dataset" if layout == h5py.h5d.VIRTUAL else "a dataset in external files"
        raise UnsupportedError(
            f"this is {what}: its values are in other files, which penstock does not open",
            hint="choose what to read with datasets=, or copy the values into this file",
        )
    filters = _filters(plan)
    if handle.shape is None:
        return None
    shape = tuple(int(length) for length in handle.shape)
    chunk = tuple(int(n) for n in plan.get_chunk()) if layout == h5py.h5d.CHUNKED else None
    found = Found(name, handle, _dtype(handle), shape, chunk, filters, user_block)
    if found.record_bytes <= limits.record_bytes:  # otherwise, reading it raises an error
        _check_claims(found, limits, size)
    return found


def _filters(plan: Any) -> tuple[str, ...]:
    """Return the filters of a dataset. Raise UnsupportedError if one is not built in."""
    codes = [plan.get_filter(n)[0] for n in range(plan.get_nfilters())]
    unknown = [code for code in codes if code not in FILTERS]
    if unknown:
        raise UnsupportedError(
            f"the dataset needs the filter {unknown[0]}, a plug-in, which penstock does not load",
            hint="choose what to read with datasets=, or h5repack it with gzip",
        )
    return tuple(FILTERS[code] for code in codes)


def _dtype(handle: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = handle.dtype
    except TypeError as error:
        raise UnsupportedError(f"NumPy has no such type: {error}") from error
    if dtype.hasobject and dtype.kind != "O":
        # libhdf5 1.14 keeps conversions of such types after their file is closed. Reading such a
        # type again after another handle of the file was closed crashes the process.
        raise UnsupportedError(
            "a structure holds text or lists of any length, which libhdf5 does not read safely",
            hint="choose what to read with datasets=, or store each in a separate dataset",
        )
    return dtype


def _check_claims(found: Found, limits: Limits, size: int) -> None:
    """Compare the size of a dataset with that of the file. Values that were never written take no bytes, so nothing
    else limits their number."""
    shape, chunk, dtype = found.shape, found.chunk, found.dtype
    total = math.prod(shape) * dtype.itemsize
    most = max(limits.member_bytes, _EXPANSION * size)
    if total > most:
        raise LimitError(
            f"the dataset declares {total} bytes of values in a file of {size} bytes",
            hint=f"open(..., limits={{'member_bytes': {total}}})",
        )
    if shape and not found.record_bytes and shape[0] > 1 << 24:
        raise LimitError(f"the dataset declares {shape[0]} records of no bytes")
    if chunk is not None:
        limits.check("member_bytes", math.prod(chunk) * dtype.itemsize)
        axes = zip(shape[1:], chunk[1:], strict=True)
        pieces = math.prod(-(-length // max(part, 1)) for length, part in axes)
        if pieces > max(size, MOST_PIECES):
            raise LimitError(
                f"a record is in {pieces} chunks, in a file of {size} bytes",
                hint="choose what to read with datasets=, or h5repack it with larger chunks",
            )


def check_chunks(found: Found) -> None:
    """Raise FormatError for a chunk shorter than its checksum of 4 bytes, because libhdf5 removes these bytes without a
    check."""
    if "fletcher32" not in found.filters:
        return
    bit = 1 << found.filters.index("fletcher32")
    broken: list[Any] = []

    def check(chunk: Any) -> None:
        if chunk.size < 4 and not chunk.filter_mask & bit:
            broken.append(chunk)

    if found.id.get_storage_size():
        found.id.chunk_iter(check)
    if broken:
        raise FormatError(
            "a chunk is shorter than its checksum",
            byte=broken[0].byte_offset,
            found=f"{broken[0].size} bytes",
        )


def attributes(handle: Any) -> dict[bytes, bytes]:
    """Return the attributes of a dataset or group as text: strings unchanged, other values as JSON. Skip attributes
    that are large, or are neither numbers nor text."""
    h5py = h5py_or_error()
    found: dict[bytes, bytes] = {}
    names: list[bytes] = []
    h5py.h5a.iterate(handle, names.append, order=h5py.h5.ITER_NATIVE)
    for name in sorted(names)[:MOST_ATTRIBUTES]:
        attribute = h5py.h5a.open(handle, name)
        try:
            dtype, shape = attribute.dtype, attribute.shape
        except TypeError:
            continue
        marks: Any = dtype.metadata or {}
        is_text = marks.get("vlen") in (str, bytes)
        if shape is None or len(shape) > 1 or (dtype.kind not in "biufcSU" and not is_text):
            continue
        if math.prod(shape) * dtype.itemsize > MOST_ATTRIBUTE_BYTES or "enum" in marks:
            continue
        values = np.empty(shape, dtype=dtype)
        attribute.read(values)
        found[name] = text_of(values)
    return found


def text_of(values: np.ndarray) -> bytes:
    """Return values as metadata: one string as its bytes, others as JSON. JSON has base64 for bytes that are not UTF-8,
    and Python's text for numbers that it lacks."""
    items = values.reshape(-1).tolist()
    if values.shape == () and isinstance(items[0], (str, bytes)):
        return items[0] if isinstance(items[0], bytes) else items[0].encode("utf-8", "replace")
    found = [_item(value) for value in items]
    return json.dumps(found[0] if values.shape == () else found).encode()


def _item(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, complex):
        return [_item(value.real), _item(value.imag)]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


SCHEMA_ATTRIBUTE = b"penstock.schema"
"""The file's attribute for Arrow's schema, in Base64, if it differs from what the datasets alone give."""
