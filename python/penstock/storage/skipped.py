"""Files that are found but not read, judged by their names, and the reason.

| name | why it is not data |
|---|---|
| `.x` | hidden |
| `x.incomplete`, `x.part`, `x.tmp`, all below `_temporary` | unfinished |
| `SUCCESS`, `_SUCCESS`, `_metadata`, `_common_metadata`, `_started*`, `_committed*` | Spark and others add it to data |
| `x.crc` | checksums of Hadoop |
| `Thumbs.db`, `desktop.ini`, all below `__MACOSX` | operating systems add it to folders |
| all below `_delta_log` | the log of a Delta table |

In folders of images, the names of pictures and class folders may begin with an underscore. A file that the user names
directly is always opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

HIDDEN = "hidden: its name begins with a dot"
UNFINISHED = "unfinished, as its name says"
MARK = "a marker or summary that another program keeps with its data"
OF_SYSTEM = "kept by the operating system"
CHECKSUMS = "checksums of another program"
DELTA_LOG = "the log of a Delta table, so files that the table has removed are read as well"
INDEX = "an index of the file next to it"
TEXT = "text next to the data"
CAPTION = "unread text with the name of an image"
LINK = "a link to a folder, which is not followed"
CYCLE = "a link to a folder that it is in"
BROKEN_LINK = "a link to a missing file"
NO_FILE = "a pipe, a socket or a device"
UNLISTED = "not listed in index.json"
NO_BYTES = "an empty file, which is not valid in this format"
NO_IMAGE = "not an image that penstock decodes"
FOREIGN = "in no known format"
MANIFEST = "a manifest, which lists shards; it is opened by its own name"
UNREADABLE = "a name with //, /./, /../ or control characters, which cannot be read"
NO_ROW = "an image that the table does not name"

_LOOKS_LIKE_DATA = (
    UNFINISHED,
    DELTA_LOG,
    CAPTION,
    LINK,
    BROKEN_LINK,
    UNLISTED,
    FOREIGN,
    UNREADABLE,
)
_UNFINISHED_ENDINGS = (".incomplete", ".part", ".tmp")
_MARKS = ("_SUCCESS", "_metadata", "_common_metadata")
_MARKS_BEGIN = ("_started", "_committed")
_OF_SYSTEMS = ("thumbs.db", "desktop.ini", "__macosx")
_NAMED_IN_WARNINGS = 3


class SkippedFile(NamedTuple):
    """A file or folder that was found but is not read."""

    path: str
    reason: str


def why_not_data(name: str, *, may_begin_with_underscore: bool = False) -> str | None:
    """Why a file or folder with this name is not data; None if it may be data."""
    if name.startswith("."):
        return HIDDEN
    if name.lower().endswith(_UNFINISHED_ENDINGS):
        return UNFINISHED
    if name.endswith(".crc"):
        return CHECKSUMS
    if name.lower() in _OF_SYSTEMS:
        return OF_SYSTEM
    if name == "SUCCESS":
        return MARK
    if may_begin_with_underscore or not name.startswith("_"):
        return None
    if name in _MARKS or name.startswith(_MARKS_BEGIN):
        return MARK
    return {"_temporary": UNFINISHED, "_delta_log": DELTA_LOG}.get(name)


def warning_about(files: Iterable[SkippedFile]) -> str | None:
    """A warning about skipped files that look like data, if there are any."""
    found = [file for file in files if file.reason in _LOOKS_LIKE_DATA]
    if not found:
        return None
    named = [f"{os.path.basename(path)} ({reason})" for path, reason in found[:_NAMED_IN_WARNINGS]]
    more = len(found) - len(named)
    tail = f" and {more} more" if more else ""
    folder = os.path.dirname(found[0].path) or "."
    return f"{folder}: left out {', '.join(named)}{tail}; Dataset.skipped_files lists them"
