"""The files of a cache: each has one block of an object, and is named by a hash of the object's address and state.

A file is the block's bytes, the CRC-32C of each 64 KiB of them, the key, and 24 bytes with the lengths and a checksum of
all but the bytes. The core reads it (`rust/src/python/cached_blocks.rs`), and compares each piece when a process first
needs it, or when the file was written to since. So neither a power cut nor a broken disk can change a byte; nothing is
synced. A file that is not as it was written is removed. When a block was last used is its time of access, because the
time of modification tells whether the file is still what was compared.

Whoever writes holds a lock of the folder, which the system releases when a process is killed. The lock file has the bytes
in use. They are counted before a file is written, so a killed writer may leave a count that is too high, and never one
that is too low. When the count reaches the budget, the folder is listed, and the blocks that were used last longest ago
are removed. There is a single temporary file, which the next writer overwrites.

A process that requests a block claims it, by a lock on one byte of a file, so that the ranks on a machine do not all
request the same blocks. The system releases these locks, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import struct
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from penstock import _core
from penstock.engine.locks import Lock

BLOCK_BYTES = 8 << 20
_PIECE_BYTES = 64 << 10
_FIXED = struct.Struct("<8sIIII")
_MAGIC = b"penblk01"
_COUNT = struct.Struct("<Q")
_NAME = re.compile(r"[0-9a-f]{32}\.\d+")
_LOCK = ".lock"
_CLAIMS = ".claims"
_TEMPORARY = ".block.tmp"
_LEFT = 0.9
"""The share of the budget that is in use after blocks were removed."""
_LOCK_SECONDS = 2.0
"""How long to wait for another process that writes. One that is stopped keeps its lock."""
_POLL_SECONDS = 0.003


class Kept(Enum):
    """What became of a block that was to be written."""

    YES = 1
    FULL = 2
    """There is no room, or only that of blocks which are in use."""
    BUSY = 3
    """Other processes kept the lock."""


@dataclass(frozen=True)
class Block:
    """One block of an object in one state."""

    key: bytes
    """Identifies the object and its state: the address, a zero, and more."""
    number: int
    num_bytes: int

    @cached_property
    def name(self) -> str:
        """The name of its file."""
        return f"{hashlib.blake2b(self.key, digest_size=16).hexdigest()}.{self.number}"

    @cached_property
    def place(self) -> int:
        """The byte of the file of claims that stands for this block."""
        return int(hashlib.blake2b(self.name.encode(), digest_size=7).hexdigest(), 16)

    @property
    def num_pieces(self) -> int:
        """How many pieces have checksums of their own."""
        return -(-self.num_bytes // _PIECE_BYTES)

    def end_of_file(self, table: bytes) -> bytes:
        """What follows the bytes in the file. `table` has the checksums of the pieces."""
        fixed = _FIXED.pack(_MAGIC, self.num_bytes, self.number, len(self.key), 0)
        crc = _core.Buffer.from_bytes(table + self.key + fixed).crc32c()
        return table + self.key + fixed[:-4] + struct.pack("<I", crc)


@dataclass(frozen=True)
class Found:
    """A block in the folder."""

    path: str
    num_bytes: int
    used_ns: int


_CLAIM_FILES: dict[str, int] = {}
"""The open files with the claims of this process. They are never closed: that would release all claims in them."""


class BlockFiles:
    """The blocks in a folder that several processes may share. `max_bytes` of None is half of the free space."""

    def __init__(self, folder: str, max_bytes: int | None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = Lock()

    def has(self, block: Block) -> bool:
        """Whether there is a file for this block. Its bytes may still be wrong."""
        return os.path.exists(self._path(block))

    def opened(self, key: bytes, size: int, hits: _core.CacheHits) -> _core.File:
        """The bytes of an object as far as they are in the folder."""
        prefix = self._path(Block(key, 0, 0)).removesuffix("0")
        return _core.File.of_blocks(prefix, key, size, hits)

    def write(self, block: Block, data: _core.Buffer, since_ns: int) -> Kept:
        """Keep a block. To make room, blocks are removed that were not used since `since_ns`. Raises OSError."""
        pieces = (data.slice(at, _PIECE_BYTES) for at in range(0, len(data), _PIECE_BYTES))
        crcs = [piece.crc32c() for piece in pieces]
        end = block.end_of_file(struct.pack(f"<{len(crcs)}I", *crcs))
        need = len(data) + len(end)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        with self._locked() as lock:
            if lock is None:
                return Kept.BUSY
            if self.has(block):
                return Kept.YES
            used = _counted(lock)
            if used is None or used + need > self._budget():
                used = self._with_room(need, since_ns)
            if used is None:
                return Kept.FULL
            _count(lock, used + need)
            self._write_file(self._path(block), data, end)
        return Kept.YES

    def claim(self, block: Block) -> bool:
        """Claim to request a block. False if another process has claimed it."""
        path = os.path.join(self._folder, _CLAIMS)
        try:
            with self._lock:
                if path not in _CLAIM_FILES:
                    os.makedirs(self._folder, mode=0o700, exist_ok=True)
                    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                    _CLAIM_FILES[path] = os.open(path, flags, 0o600)
            fcntl.lockf(_CLAIM_FILES[path], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, block.place)
        except (BlockingIOError, PermissionError):
            return False
        except OSError:
            pass  # no locks: several processes may request the same block
        return True

    def release(self, block: Block) -> None:
        """Give up a claim."""
        with suppress(OSError, KeyError):
            file = _CLAIM_FILES[os.path.join(self._folder, _CLAIMS)]
            fcntl.lockf(file, fcntl.LOCK_UN, 1, block.place)

    def found(self) -> Iterator[Found]:
        """All blocks in the folder. There may be other files, too."""
        try:
            entries = os.scandir(self._folder)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                with suppress(OSError):
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        told = entry.stat(follow_symlinks=False)
                        used_ns = max(told.st_atime_ns, told.st_mtime_ns)
                        yield Found(entry.path, told.st_size, used_ns)

    def clear(self) -> int:
        """Remove all blocks, and return how many bytes they had. Raises TimeoutError if another process keeps the
        lock."""
        if not os.path.isdir(self._folder):
            return 0
        freed = 0
        with self._locked() as lock:
            if lock is None:
                raise TimeoutError(f"another process keeps the lock of the cache in {self._folder}")
            for block in list(self.found()):
                os.unlink(block.path)
                freed += block.num_bytes
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, _TEMPORARY))
            _count(lock, 0)
        return freed

    def _path(self, block: Block) -> str:
        return os.path.join(self._folder, block.name)

    def _budget(self) -> int:
        if self._max_bytes is None:
            used = sum(block.num_bytes for block in self.found())
            self._max_bytes = (shutil.disk_usage(self._folder).free + used) // 2
        return self._max_bytes

    def _with_room(self, need: int, since_ns: int) -> int | None:
        """Remove old blocks until there is room. Returns the bytes that are then in use; None if there is no room."""
        found = sorted(self.found(), key=lambda block: block.used_ns)
        used = sum(block.num_bytes for block in found)
        for block in found:
            if used + need <= _LEFT * self._budget() or block.used_ns >= since_ns:
                break
            os.unlink(block.path)
            used -= block.num_bytes
        return used if used + need <= self._budget() else None

    def _write_file(self, path: str, data: _core.Buffer, end: bytes) -> None:
        temporary = os.path.join(self._folder, _TEMPORARY)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600)
        try:
            try:
                for part in (memoryview(data), memoryview(end)):
                    while len(part):
                        part = part[os.write(file, part) :]
            finally:
                os.close(file)
            os.rename(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    @contextmanager
    def _locked(self) -> Generator[int | None]:
        """Lock the folder, and yield the open lock file. None if other processes keep it too long."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with self._lock:
            lock = os.open(os.path.join(self._folder, _LOCK), flags, 0o600)
            try:
                if not _is_locked(lock):
                    yield None
                    return
                try:
                    yield lock
                finally:
                    fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may hold it, too
            finally:
                os.close(lock)


def address_of(path: str) -> str:
    """The address in the key of a block. Raises OSError or ValueError if there is none."""
    with open(path, "rb", opener=_unnoticed) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(size - _FIXED.size)
        magic, _, _, key_bytes, _ = _FIXED.unpack(file.read(_FIXED.size))
        if magic != _MAGIC:
            raise ValueError("not a block")
        file.seek(size - _FIXED.size - key_bytes)
        return file.read(key_bytes).partition(b"\0")[0].decode("utf-8", "replace")


def _unnoticed(path: str, flags: int) -> int:
    """Open a file without noting it as used, if the system can."""
    with suppress(OSError):
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    return os.open(path, flags)


def _is_locked(lock: int) -> bool:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)


def _counted(lock: int) -> int | None:
    """The bytes in use, as far as the lock file has them."""
    data = os.pread(lock, _COUNT.size + 1, 0)
    return _COUNT.unpack(data)[0] if len(data) == _COUNT.size else None


def _count(lock: int, used: int) -> None:
    os.pwrite(lock, _COUNT.pack(used), 0)
