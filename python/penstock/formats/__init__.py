"""The registry of formats: the only file that names all formats. To add a format, add one line here, or an entry point
of the group `penstock.formats` in another package."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from threading import Thread
from types import ModuleType
from typing import Never

from penstock.contract.format import Format
from penstock.errors import FormatError, UnsupportedError, shown
from penstock.formats.arrow.format import ArrowFormat
from penstock.formats.parquet.format import ParquetFormat
from penstock.formats.tfrecord.format import TFRecordFormat
from penstock.storage.base import Source
from penstock.storage.folder import Folder
from penstock.storage.lookalikes import LOOK_BYTES, has_foreign_checksums, looks_like, own_file

_FIRST: tuple[Format, ...] = (TFRecordFormat(), ParquetFormat(), ArrowFormat())
# Imported only if a file has none of the first three formats, because most programs use only these.
_LATER = {
    "webdataset": "WebDatasetFormat",
    "recordio": "RecordIOFormat",
    "beton": "BetonFormat",
    "hdf5": "Hdf5Format",
    "npy": "NpyFormat",
    "npz": "NpzFormat",
    "msgpack": "MessagePackFormat",
    "arrayrecord": "ArrayRecordFormat",
    "mds": "MDSFormat",
    "imagefolder": "ImageFolderFormat",
}

FORMATS: list[Format]
"""All formats, in the order in which they are tried: first those with the most distinctive structure, last those of
other packages."""
GROUP = "penstock.formats"
"""Packages register formats as entry points of this group."""
_PACKAGES: dict[tuple[str, str], str] = {}
"""For each class of a format in another package, the name and version of the package."""


def _import_own() -> list[ModuleType]:
    return [import_module(f"penstock.formats.{name}.format") for name in _LATER]


@cache
def _own() -> tuple[Format, ...]:
    kinds = zip(_import_own(), _LATER.values(), strict=True)
    return (*_FIRST, *(getattr(module, kind)() for module, kind in kinds))


def __getattr__(name: str) -> list[Format]:
    if name != "FORMATS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _formats()


def _formats() -> list[Format]:
    known: list[Format] | None = globals().get("FORMATS")
    if known is None:
        known = list(_own())
        _add_installed(known)
        globals()["FORMATS"] = known
    return known


def _add_installed(known: list[Format]) -> None:
    """Add the formats of other packages. If one cannot be loaded, warn and skip it, so that other files still
    open."""
    for entry in entry_points(group=GROUP):
        try:
            fmt = _loaded(entry)
            _check_free(fmt, known)
        except Exception as error:  # noqa: BLE001  the code of another package
            message = f"the format {entry.name!r} of {entry.value!r} cannot be loaded: {error}"
            warnings.warn(message, stacklevel=2)
        else:
            known.append(fmt)
            if entry.dist is not None:
                _PACKAGES[_class(fmt)] = f"{entry.dist.name} {entry.dist.version}"


def _loaded(entry: EntryPoint) -> Format:
    found = entry.load()
    fmt = found() if isinstance(found, type) else found
    if not isinstance(fmt, Format):
        raise TypeError(f"it is {fmt!r}, not a penstock.contract.format.Format")
    return fmt


def _check_free(fmt: Format, known: Iterable[Format]) -> None:
    """Raise ValueError if another format has the name of a format, or one of its extensions."""
    for other in known:
        if other.info.name == fmt.info.name:
            raise ValueError(
                f"{_origin(fmt)} and {_origin(other)} both have a format {fmt.info.name!r}; choose "
                "another name"
            )
        for ending in fmt.info.extensions:
            if ending in other.info.extensions:
                raise ValueError(
                    f"the format {fmt.info.name!r} of {_origin(fmt)} and {other.info.name!r} of "
                    f"{_origin(other)} both have the extension {ending!r}; choose another extension"
                )


def package_of(fmt: Format) -> str:
    """The package of a format and its version; "penstock" for its own formats. For a format that a program has
    registered, the module."""
    return "penstock" if fmt in _own() else _PACKAGES.get(_class(fmt), _class(fmt)[0])


def _origin(fmt: Format) -> str:
    """The class of a format, or "penstock" for its own formats."""
    return "penstock" if fmt in _own() else ".".join(_class(fmt))


_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
}
"""Magic numbers of compressed files."""
_EVER_PACKED = ("tfrecord", "webdataset", "mds")
"""Formats whose files may be compressed as a whole."""
HEAD_BYTES = LOOK_BYTES
"""How many bytes at the start of a file are used to detect its format."""
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


def register(fmt: Format) -> None:
    """Add a format of another package, so that this process can open and write its files. It replaces a format of the
    same class, so a notebook cell or a module can register its format again.

    Raises:
        ValueError: another format has this name, or one of these extensions.

    Example:
        >>> from penstock import formats
        >>> from penstock.formats.npy.format import NpyFormat
        >>> class Other(NpyFormat):
        ...     pass
        >>> formats.register(Other())
        Traceback (most recent call last):
            ...
        ValueError: __main__.Other and penstock both have a format 'npy'; choose another name
    """
    known = _formats()
    others = [other for other in known if other in _own() or _class(other) != _class(fmt)]
    _check_free(fmt, others)
    known[:] = [*others, fmt]


def _class(fmt: Format) -> tuple[str, str]:
    """The name of a format's class, which stays the same when its module is loaded again."""
    return type(fmt).__module__, type(fmt).__qualname__


def load() -> None:
    """Import all formats. Call this before forking, because a child that is forked during such an import would
    deadlock."""
    _formats()


@contextmanager
def loading(*, beside: bool) -> Generator[None]:
    """Import all formats, at the latest when the block ends. With `beside`, a thread does so while the block waits for
    a storage with slow access."""
    thread = Thread(target=_import_own, name="penstock-formats")
    if not beside:
        load()
    elif "FORMATS" not in globals():
        thread.start()
    try:
        yield
    finally:
        if thread.ident is not None:
            thread.join()
    load()


def by_name(name: str) -> Format:
    """Return the format with this name. Raise ValueError, which lists the known names, if there is none."""
    for fmt in _formats():
        if fmt.info.name == name:
            return fmt
    raise ValueError(
        f"unknown format {name!r}; known: {', '.join(f.info.name for f in _formats())}"
    )


def by_path(path: str) -> Format:
    """Return the format in which to write a file, from the suffix of its name. A final .gz and a shard ending such as
    -00000-of-00010 are ignored."""
    name = "/" if path.endswith("/") else path.rsplit("/", 1)[-1].lower()
    suffixes = {ext: fmt for fmt in _formats() for ext in fmt.info.extensions}
    for ending, fmt in sorted(suffixes.items(), key=lambda item: -len(item[0])):
        if name.endswith((ending, ending + ".gz")) or f"{ending}-" in name:
            return fmt
    raise ValueError(
        f"{shown(path)}: the name does not say which format to write; use format= or one of the endings "
        f"{', '.join(sorted(end for end, fmt in suffixes.items() if fmt.info.can_write))}"
    )


def of(source: Source) -> Format:
    """Return the format of a file, detected from its content, or of a folder. Raise FormatError if none matches."""
    if isinstance(source, Folder):
        return next(fmt for fmt in _formats() if fmt.info.is_folder)

    if own := own_file(source.path):
        message = f"the file is not data: it is {own.what}"
        raise FormatError(message, file=source.path, hint=own.hint)

    def tail() -> bytes:
        return source.read(max(0, source.size - HEAD_BYTES), HEAD_BYTES).to_bytes()

    return by_bytes(source.read(0, HEAD_BYTES).to_bytes(), source.size, source.path, tail)


def by_bytes(head: bytes, size: int, path: str, tail: Callable[[], bytes] = bytes) -> Format:
    """Return the format of a file, detected from its content.

    Args:
        head: its first bytes, up to HEAD_BYTES.
        size: the size of the file in bytes.
        path: the file name.
        tail: reads its last bytes; called only if no format matches.

    Raises:
        FormatError: no format matches, or the content clearly contradicts the name.
        UnsupportedError: the file is compressed, and penstock cannot read compressed files of its format.
    """
    try:
        named = by_path(path)
    except ValueError:
        named = None
    if not size:
        # Nothing to detect: it is an empty TFRecord file, unless its name says otherwise.
        return named or _FIRST[0]
    found = _sniffed(head, size, path, named)
    if found is not None:
        return found
    if named is None and size == len(head) and _holds_nothing(head):
        return _FIRST[0]
    _refuse_packed(head, path, named)
    look = looks_like(head, tail() if size > len(head) else head, path)
    if look is not None:
        name = "in no known format" if named is None else f"not a {named.info.name} file"
        message = f"the file is {name}: it is {look.what}"
        raise FormatError(message, file=path, hint=look.hint)
    return named or _unknown(head, size, path)  # the reader reports a damaged start


def _sniffed(head: bytes, size: int, path: str, named: Format | None) -> Format | None:
    """Return the format that recognizes the first bytes, preferably the one that the name suggests."""
    for fmt in _FIRST:
        if path.lower().endswith(fmt.info.extensions) and fmt.sniff(head, size):
            return fmt
    for fmt in _formats() if named is None else [named, *_formats()]:
        # Only zeros: a tar archive without members, or any file after a crash. The name decides.
        if (fmt is named or head.strip(b"\0")) and fmt.sniff(head, size):
            return fmt
    return None


def _refuse_packed(head: bytes, path: str, named: Format | None) -> None:
    """Raise UnsupportedError if the file is compressed, and penstock does not read compressed files of the format that
    its name suggests."""
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None and (
        named is None or (named in _own() and named.info.name not in _EVER_PACKED)
    ):
        what = "such files" if named is None else f"compressed {named.info.name} files"
        raise UnsupportedError(
            f"the file is compressed with {packed}, and penstock does not read {what}",
            file=path,
            hint="decompress it first",
        )


def _unknown(head: bytes, size: int, path: str) -> Never:
    if has_foreign_checksums(head, size):
        raise FormatError(
            "the file is in no known format, unless it is a TFRecord file with wrong checksums",
            file=path,
            hint='open(..., format="tfrecord", checksums="none")',
        )
    known = ", ".join(fmt.info.name for fmt in _formats())
    raise FormatError(
        "the file is in no known format",
        file=path,
        found=f"{head[:8].hex(' ')} at byte 0",
        hint=f"open(..., format=...) with one of: {known}",
    )


def _holds_nothing(data: bytes) -> bool:
    """Whether a compressed file holds no data, as a shard without records does. Then its content shows no format."""
    while data:
        inflating = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            if inflating.decompress(data, 1) or not inflating.eof:
                return False
        except zlib.error:
            return False
        data = inflating.unused_data
    return True
