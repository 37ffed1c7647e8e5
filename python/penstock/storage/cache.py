"""`penstock.Cache`: a folder on a local disk with parts of objects that were read from a store."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from posixpath import dirname
from typing import Any

from penstock.limits import checked_count
from penstock.storage._cache_files import BLOCK_BYTES, BlockFiles, address_of

LEAST_BYTES = 2 * BLOCK_BYTES


@dataclass(frozen=True)
class CachedFolder:
    """What a cache has of the objects in one folder.

    Attributes:
        address: the address of the folder, without a query.
        num_objects, num_blocks, num_bytes: what is there.
        used_ns: when some of it was last used, in nanoseconds since 1970, to a minute.
    """

    address: str
    num_objects: int
    num_blocks: int
    num_bytes: int
    used_ns: int


@dataclass(frozen=True)
class CacheUsage:
    """What is in a cache.

    Attributes:
        folder: the folder of the cache.
        num_blocks, num_bytes: its blocks, and their bytes on disk.
        folders: what they are from, as `CachedFolder`s, the most bytes first.
    """

    folder: str
    num_blocks: int
    num_bytes: int
    folders: list[CachedFolder]

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return asdict(self)


class Cache:
    """A folder on a local disk that keeps what was read from object stores, for `penstock.open(cache=)`.

    Objects are kept in blocks of 8 MiB, under their address and the tag of their state, so a changed object is never
    read from old blocks. An open dataset compares checksums when it first reads a part of a block, and again when the
    block's file was written to since. Processes share the folder, and may be killed at any time. What was not used for
    the longest time is removed first; blocks that an open dataset uses are not removed for others of it. If the disk is
    full, a warning says so, and reading goes on without the cache.

    Args:
        folder: the folder, which is created when it is needed. None: `penstock/blocks` in the user's cache.
        max_bytes: what the blocks may use on disk, at least 16 MiB. None: half of what is free when the first block is
            written, together with what the cache has.

    Raises:
        ValueError: `max_bytes` is too small.

    Example:
        >>> import penstock as ps
        >>> cache = ps.Cache("blocks", max_bytes=20 << 30)
        >>> cache.usage().num_bytes
        0
    """

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, max_bytes: int | None = None
    ) -> None:
        place = _users_folder() if folder is None else os.path.expanduser(os.fsdecode(folder))
        self.folder = os.path.abspath(place)
        self.max_bytes = (
            None if max_bytes is None else checked_count("max_bytes", max_bytes, LEAST_BYTES)
        )
        self.files = BlockFiles(self.folder, self.max_bytes)
        self.is_stopped = False
        """Whether no more is written, because the disk refused it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Cache, (self.folder, self.max_bytes)

    def __repr__(self) -> str:
        return f"penstock.Cache({self.folder!r}, max_bytes={self.max_bytes})"

    def usage(self) -> CacheUsage:
        """What is in the cache, and how large it is.

        Example:
            >>> import penstock as ps
            >>> ps.Cache("blocks").usage().folders
            []
        """
        objects: dict[str, set[str]] = {}
        counts: dict[str, list[int]] = {}
        for address, name, num_bytes, used_ns in self._blocks():
            place = dirname(address)
            objects.setdefault(place, set()).add(name.partition(".")[0])
            count = counts.setdefault(place, [0, 0, 0])
            count[:] = count[0] + 1, count[1] + num_bytes, max(count[2], used_ns)
        folders = [
            CachedFolder(place, len(objects[place]), *count) for place, count in counts.items()
        ]
        folders.sort(key=lambda one: (-one.num_bytes, one.address))
        return CacheUsage(
            self.folder,
            sum(one.num_blocks for one in folders),
            sum(one.num_bytes for one in folders),
            folders,
        )

    def clear(self) -> int:
        """Remove all blocks, and return how many bytes they had. Other files in the folder stay.

        Raises:
            TimeoutError: another process keeps the lock of the folder.

        Example:
            >>> import penstock as ps
            >>> ps.Cache("blocks").clear()
            0
        """
        return self.files.clear()

    def stop(self, error: OSError) -> None:
        """Write no more, and warn: the disk refused a block."""
        if not self.is_stopped:
            self.is_stopped = True
            warnings.warn(
                f"the cache in {self.folder} cannot be written ({error.strerror or error}), so nothing more is kept "
                "in it, and reading goes on without it; free some space, or choose another folder",
                stacklevel=2,
            )

    def _blocks(self) -> Iterator[tuple[str, str, int, int]]:
        for block in self.files.found():
            with suppress(OSError, ValueError, struct.error):
                yield (
                    address_of(block.path),
                    os.path.basename(block.path),
                    block.num_bytes,
                    block.used_ns,
                )


def cache_of(value: Cache | str | os.PathLike[str] | None) -> Cache | None:
    """A user's value for `cache=`: a Cache, or a folder."""
    return value if value is None or isinstance(value, Cache) else Cache(value)


def _users_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "penstock", "blocks")
