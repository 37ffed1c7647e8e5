"""Tells images, tables of their labels and accompanying text apart by their names, and so recognizes a folder of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from penstock.limits import Limits
from penstock.storage.hidden import is_own
from penstock.storage.lookalikes import LOOK_BYTES, is_text
from penstock.storage.skipped import why_not_data

IMAGE_ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".ppm", ".pgm", ".pnm", ".bmp", ".gif", ".tif", ".tiff",
)  # fmt: skip
_CODECS = {
    ".jpg": "jpeg", ".jpe": "jpeg", ".jfif": "jpeg", ".pgm": "ppm", ".pnm": "ppm", ".tif": "tiff",
}  # fmt: skip
"""The codecs of endings that are not the names of their codecs."""
_ENDINGS = {"jpeg": ".jpg", "tiff": ".tif"}
TABLE_STEMS = ("metadata", "labels")
TABLE_ENDINGS = (".csv", ".jsonl", ".ndjson", ".parquet")


COMPANION_STEMS = (
    "readme", "license", "licence", "copying", "notice", "changelog", "citation", "authors",
    "makefile", "checksums", "md5sums", "sha256sums",
)  # fmt: skip
COMPANION_ENDINGS = (
    ".txt", ".md", ".rst", ".html", ".htm", ".tex", ".bib", ".log", ".csv", ".tsv", ".json", ".jsonl", ".ndjson",
    ".yaml", ".yml", ".toml", ".ini", ".cfg", ".xml", ".py", ".sh", ".ipynb", ".pbtxt", ".md5", ".sha1",
    ".sha256", ".sha512",
)  # fmt: skip


def _may_be_companion(path: str) -> bool:
    stem, ending = os.path.splitext(os.path.basename(path).lower())
    return ending in COMPANION_ENDINGS or (not ending and stem in COMPANION_STEMS)


def is_companion(path: str, read: Callable[[int], bytes]) -> bool:
    """Whether a file next to data is accompanying text, by its name and its first bytes. A damaged data file is not
    accompanying text. `read` returns the first n bytes of the file."""
    if not _may_be_companion(path):
        return False
    head = read(LOOK_BYTES)
    return not head or is_text(head)


def is_image_name(name: str) -> bool:
    """Whether this is the name of an image that penstock decodes."""
    return name.lower().endswith(IMAGE_ENDINGS)


def codec_of_name(name: str) -> str | None:
    """The codec that the ending of a file's name says; None if it is not the name of an image.

    Example:
        >>> from penstock.storage.image_names import codec_of_name
        >>> codec_of_name("cat/1.JPG"), codec_of_name("cat/1.txt")
        ('jpeg', None)
    """
    ending = os.path.splitext(name)[1].lower()
    return _CODECS.get(ending, ending[1:]) if ending in IMAGE_ENDINGS else None


def named_after_codec(name: str, codec: str) -> str:
    """The name of an image's file with an ending of the image's codec. An ending of this codec is kept, and other
    names than those of images are not changed.

    Example:
        >>> from penstock.storage.image_names import named_after_codec
        >>> named_after_codec("cat/1.b.png", "jpeg"), named_after_codec("cat/1.JPEG", "jpeg")
        ('cat/1.b.jpg', 'cat/1.JPEG')
    """
    if codec_of_name(name) in (None, codec):
        return name
    return os.path.splitext(name)[0] + _ENDINGS.get(codec, f".{codec}")


def is_table_name(name: str) -> bool:
    """Whether this is the name of a table of image labels."""
    stem, ending = os.path.splitext(name.lower())
    return stem in TABLE_STEMS and ending in (*TABLE_ENDINGS, ".json")


def why_not_there(entry: os.DirEntry[str]) -> str | None:
    """Why a file or folder in a folder of images is ignored; None if it is read."""
    name = entry.name
    may_begin = is_image_name(name) or entry.is_dir()
    return why_not_data(name, may_begin_with_underscore=may_begin)


def _shown(path: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        for entry in entries:
            if not is_own(entry.name) and why_not_there(entry) is None:
                yield entry


def holds_images(path: str) -> bool:
    """Whether a folder is a folder of images, by the names of its files. It must directly contain an image, a table of
    labels for images in its subfolders, or a subfolder whose first file is an image. It must not contain other data."""
    has_images, tables, deeper = False, list[str](), list[str]()
    for entry in _shown(path):
        if entry.is_dir():
            deeper.append(
                entry.path
            )  # also a link to a folder, which the format follows or reports
        elif is_image_name(entry.name):
            has_images = True
        elif is_table_name(entry.name):
            tables.append(entry.name)
        elif not _is_beside(entry):
            return False
    if has_images:
        return True
    deeper.sort()
    if not tables:
        return any(is_image_name(_first_file(folder, 1) or "") for folder in deeper[:1000])
    return are_labels(tables, (_first_file(folder, Limits().nesting) for folder in deeper))


def are_labels(tables: Sequence[str], firsts: Iterable[str | None]) -> bool:
    """Whether tables are labels of images in folders. `firsts` has the name of the first file of each folder."""
    first = next((name for name in firsts if name is not None), None)
    if first is not None:
        return is_image_name(first)
    # There are only tables. A Parquet table may be the data itself; other tables belong to missing images.
    return any(not name.lower().endswith(".parquet") for name in tables)


def _first_file(path: str, levels: int) -> str | None:
    """The name of the first file that may be data, in a folder and `levels - 1` levels of folders below it."""
    with suppress(PermissionError):
        for entry in sorted(_shown(path), key=lambda entry: entry.name):
            if entry.is_file():
                if not (_is_beside(entry) or is_table_name(entry.name)):
                    return entry.name
            elif levels > 1 and entry.is_dir(follow_symlinks=False):
                deeper = _first_file(entry.path, levels - 1)
                if deeper is not None:
                    return deeper
    return None


def _is_beside(entry: os.DirEntry[str]) -> bool:
    return entry.is_file() and not is_image_name(entry.name) and goes_with_images(entry.path)


def goes_with_images(path: str, read: Callable[[int], bytes] | None = None) -> bool:
    """Whether a file in a folder of images is accompanying text. A table of labels is not. `read` returns its first
    bytes; None reads a file of this machine."""

    def first_bytes(length: int) -> bytes:
        with open(path, "rb") as file:
            return file.read(length)

    return goes_with_images_by_name(path) and is_companion(path, read or first_bytes)


def goes_with_images_by_name(path: str) -> bool:
    """Whether a file may be accompanying text, by its name."""
    return not path.lower().endswith(TABLE_ENDINGS) and _may_be_companion(path)
