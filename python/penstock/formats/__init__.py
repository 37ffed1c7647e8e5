"""The registry: the only file that names all formats. A new format is one line here."""

from __future__ import annotations

from penstock.errors import FormatError, UnsupportedError
from penstock.folders import Folder
from penstock.format import Format
from penstock.formats.arrayrecord import ArrayRecordFormat
from penstock.formats.arrow import ArrowFormat
from penstock.formats.beton import BetonFormat
from penstock.formats.hdf5 import Hdf5Format
from penstock.formats.imagefolder import ImageFolderFormat
from penstock.formats.mds import MDSFormat
from penstock.formats.msgpack import MessagePackFormat
from penstock.formats.npy import NpyFormat
from penstock.formats.npz import NpzFormat
from penstock.formats.parquet import ParquetFormat
from penstock.formats.recordio import RecordIOFormat
from penstock.formats.tfrecord import TFRecordFormat
from penstock.formats.webdataset import WebDatasetFormat
from penstock.storage import Source

_OWN: tuple[Format, ...] = (
    TFRecordFormat(),
    ParquetFormat(),
    ArrowFormat(),
    WebDatasetFormat(),
    RecordIOFormat(),
    BetonFormat(),
    Hdf5Format(),
    NpyFormat(),
    NpzFormat(),
    MessagePackFormat(),
    ArrayRecordFormat(),
    MDSFormat(),
    ImageFolderFormat(),
)

FORMATS: list[Format] = list(_OWN)
"""In the order in which they are tried: the one whose structure proves most comes first, those from
elsewhere last."""

_PACKED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
}
"""How files begin that hold another one."""
_NEVER_PACKED = frozenset(
    fmt.info.name for fmt in _OWN if fmt.info.name not in ("tfrecord", "webdataset", "mds")
)
"""The formats none of whose files are compressed as a whole."""
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n")

HEAD_BYTES = 4096
"""How much of a file is looked at to tell its format."""


def register(fmt: Format) -> None:
    """Add a format from outside penstock: from then on this process opens and writes its files.

    Args:
        fmt: the format. One of the same name that was registered before is replaced.

    Raises:
        ValueError: penstock has a format of this name itself.

    Example:
        >>> from penstock import formats
        >>> formats.register(formats.FORMATS[0])
        Traceback (most recent call last):
            ...
        ValueError: penstock has a format 'tfrecord' itself; choose another name
    """
    name = fmt.info.name
    if any(own.info.name == name for own in _OWN):
        raise ValueError(f"penstock has a format {name!r} itself; choose another name")
    FORMATS[:] = [*(other for other in FORMATS if other.info.name != name), fmt]


def by_name(name: str) -> Format:
    """The format called `name`. Raises ValueError, which lists the known ones."""
    for fmt in FORMATS:
        if fmt.info.name == name:
            return fmt
    raise ValueError(f"unknown format {name!r}; known: {', '.join(f.info.name for f in FORMATS)}")


def by_path(path: str) -> Format:
    """The format that a file name suggests, for writing: its suffix, before .gz if there is one,
    before the -00000-of-00010 that a shard's name may end with."""
    name = "/" if path.endswith("/") else path.rsplit("/", 1)[-1].lower()
    suffixes = {ext: fmt for fmt in FORMATS for ext in fmt.info.extensions}
    for ending, fmt in sorted(suffixes.items(), key=lambda item: -len(item[0])):
        if name.endswith((ending, ending + ".gz")) or f"{ending}-" in name:
            return fmt
    raise ValueError(
        f"{path}: the name does not say which format to write; use format= or one of the endings "
        f"{', '.join(sorted(suffixes))}"
    )


def of(source: Source) -> Format:
    """The format of a file, told by its bytes, or of a folder. Raises FormatError where none fits."""
    if isinstance(source, Folder):
        return next(fmt for fmt in FORMATS if fmt.info.is_folder)
    return by_bytes(source.read(0, HEAD_BYTES).to_bytes(), source.size, source.path)


def by_bytes(head: bytes, size: int, path: str) -> Format:
    """The format of a file, told by its bytes. Raises FormatError where none fits, UnsupportedError
    where it is gzipped and its format is not read so."""
    if not size:
        # No bytes, no evidence: an empty file is an empty TFRecord, unless its name says more.
        try:
            return by_path(path)
        except ValueError:
            return FORMATS[0]
    try:
        named = by_path(path)
    except ValueError:
        named = None
    # The name decides between formats whose bytes look alike, such as two over one framing.
    for fmt in FORMATS if named is None else [named, *FORMATS]:
        if fmt.sniff(head, size):
            return fmt
    packed = next((name for magic, name in _PACKED.items() if head.startswith(magic)), None)
    if packed is not None and (named is None or named.info.name in _NEVER_PACKED):
        what = "" if named is None else f" around {named.info.name}"
        raise UnsupportedError(
            f"the file is packed with {packed}, which is not read{what}",
            file=path,
            hint="unpack it first",
        )
    if named is not None:
        return named  # damaged at its head, perhaps: its own reader says what is wrong
    if head.startswith(_PICTURES) or head[:4] + head[8:12] == b"RIFFWEBP":
        raise FormatError(
            "a picture is no file of records",
            file=path,
            hint="open(...) the folder that it lies in, or decode_images([...]) of its bytes",
        )
    known = ", ".join(fmt.info.name for fmt in FORMATS)
    raise FormatError(
        "the bytes are of no known format",
        file=path,
        found=f"{head[:8].hex(' ')} at byte 0",
        hint=f"open(..., format=...) with one of: {known}",
    )
