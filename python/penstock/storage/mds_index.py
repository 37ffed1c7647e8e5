"""Reads the index.json of MDS folders: the name, size, hashes and number of records of each shard, in order.

Names outside the folder are refused, and the sizes are compared with the files. Source: the published layout of
mosaicml-streaming's index files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.columns.facts import is_text, parsed
from penstock.errors import FormatError, TruncatedError, UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Source, Storage

INDEX_NAME = "index.json"
_OUTSIDE = re.compile(r"(^|/)\.\.?(/|$)|^/|//|/$|[\\:\0]|^$")


@dataclass(frozen=True, slots=True)
class ListedFile:
    """One file of a shard, as the index describes it."""

    name: str
    """Relative to the index, with `/` after each folder."""
    num_bytes: int
    hashes: dict[str, str]


@dataclass(frozen=True, slots=True)
class ListedShard:
    """One shard: the plain file, and the compressed one if listed."""

    plain: ListedFile
    packed: ListedFile | None
    num_records: int


def read_listing(source: Source, limits: Limits) -> list[ListedShard] | None:
    """The shards in an index.json; None if it is not an MDS index.

    Raises:
        FormatError: the index has impossible values.
        UnsupportedError: its shards are of another format of mosaicml-streaming.
    """
    try:
        limits.check("footer_bytes", source.size)
        return _parsed(source.read(0, source.size).to_bytes())
    except (FormatError, UnsupportedError) as error:
        raise error.at(file=source.path) from None


@lru_cache(2)  # every shard of a folder parses the same index
def _parsed(data: bytes) -> list[ListedShard] | None:
    try:
        index: Any = parsed(data, len(data))
    except FormatError:
        return None
    shards = index.get("shards") if isinstance(index, dict) else None
    if not isinstance(shards, list) or not all(_is_shard(shard) for shard in shards):
        return None
    if index.get("version") != 2:
        found = repr(index.get("version"))[:40]
        raise UnsupportedError("this version of index.json is not supported", found=found)
    return [_shard(shard, number) for number, shard in enumerate(shards)]


def _is_shard(shard: Any) -> bool:
    return isinstance(shard, dict) and "format" in shard and "raw_data" in shard


def _shard(shard: dict[str, Any], number: int) -> ListedShard:
    if shard["format"] != "mds":
        raise UnsupportedError(
            f"shard {number} has the format {str(shard['format'])[:40]!r}; only mds is supported"
        )
    count = _size(shard.get("samples"), number, "samples")
    packed = shard.get("zip_data")
    return ListedShard(
        _file(shard["raw_data"], number),
        None if packed is None else _file(packed, number),
        count,
    )


def _file(entry: Any, number: int) -> ListedFile:
    if not isinstance(entry, dict) or not is_text(entry.get("basename")):
        raise FormatError(f"index.json names no valid file for shard {number}")
    name = entry["basename"]
    if _OUTSIDE.search(name):
        raise FormatError(
            f"index.json names a file outside its folder for shard {number}", found=repr(name[:80])
        )
    hashes = entry.get("hashes")
    hashes = {} if hashes is None else hashes
    if not isinstance(hashes, dict) or not all(isinstance(h, str) for h in hashes.values()):
        raise FormatError(f"index.json has invalid hashes for shard {number}")
    return ListedFile(name, _size(entry.get("bytes"), number, "bytes"), hashes)


def _size(value: Any, number: int, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise FormatError(f"index.json has no valid number {key!r} for shard {number}")
    return value


def listed_paths(folder: str, found: Sequence[str], storage: Storage) -> list[str] | None:
    """The shards of a folder; None if the files `found` in it do not include an MDS index.json.

    Raises:
        FileNotFoundError: a listed shard is missing, or the list is empty.
        FormatError: a file does not have the listed size.
    """
    path = os.path.join(folder, INDEX_NAME)
    if path not in found:
        return None
    source = storage.source(path)
    try:
        shards = read_listing(source, Limits())
    finally:
        source.close()
    if shards is None:
        return None
    if not shards:
        raise FileNotFoundError(f"{path}: lists no shards")
    return [_present(folder, shard, storage) for shard in shards]


def _present(folder: str, shard: ListedShard, storage: Storage) -> str:
    """The plain file of a shard if it exists, or else the compressed one."""
    for file in (shard.plain, shard.packed):
        if file is not None:
            path = os.path.join(folder, *file.name.split("/"))
            if storage.exists(path):
                source = storage.source(path)
                size = source.size
                source.close()
                check_size(path, size, file)
                return path
    name = (shard.packed or shard.plain).name
    raise FileNotFoundError(
        f"{os.path.join(folder, name)}: no such file, but {INDEX_NAME} lists it; "
        "to read only some shards, pass a list of files"
    )


def check_size(path: str, size: int, file: ListedFile) -> None:
    """Raise FormatError if a file does not have the size in the index."""
    if size != file.num_bytes:
        kind = TruncatedError if size < file.num_bytes else FormatError
        raise kind(
            f"the file does not have the size that {INDEX_NAME} lists",
            file=path,
            expected=f"{file.num_bytes} bytes",
            found=f"{size} bytes",
        )
