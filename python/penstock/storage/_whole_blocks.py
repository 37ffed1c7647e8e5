"""Requests for whole blocks of an object: each is made once, whatever the number of threads, and a reader that reads in
order finds the next blocks on their way."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Protocol

from penstock import _core
from penstock.engine.locks import Lock
from penstock.storage._cache_files import BLOCK_BYTES, Block
from penstock.storage._object_source import AHEAD, Claim, ObjectSource, translated
from penstock.storage.base import Source

_MOST_AHEAD = 8
"""Blocks that one object may request ahead while it is read in order."""
_POLL_SECONDS = 0.02
_EMPTY = _core.Buffer.from_bytes(b"")


class KeepsBlocks(Protocol):
    """Where blocks are kept."""

    def has(self, block: Block) -> bool:
        """Whether there is a file for this block."""
        ...

    def read(self, block: Block, ranges: Sequence[tuple[int, int]]) -> list[_core.Buffer] | None:
        """Ranges of a block; None if it is not there."""
        ...

    def keep(self, block: Block, data: _core.Buffer) -> None:
        """Write a block, if there is room."""
        ...


class WholeBlocks:
    """The blocks of one object."""

    def __init__(self, source: Source, key: bytes, kept: KeepsBlocks) -> None:
        self._source = source
        self._key = key
        self._kept = kept
        self._lock = Lock()
        self._coming: dict[int, threading.Event] = {}
        """Blocks that a thread of this process waits for."""
        self._ahead: dict[int, _Coming] = {}
        self._depth = 1
        self._pid = os.getpid()

    def block(self, number: int) -> Block:
        """A block of this object."""
        start = number * BLOCK_BYTES
        return Block(self._key, number, min(BLOCK_BYTES, self._source.size - start))

    def get(self, numbers: Sequence[int], *, is_in_order: bool) -> dict[int, _core.Buffer]:
        """Request blocks, and keep them. Those that another thread requested but could not keep are left out."""
        mine, others = self._begin_all(numbers, is_in_order=is_in_order)
        found: dict[int, _core.Buffer] = {}
        try:
            for number, coming in mine.items():
                found[number] = coming.wait()
                self._kept.keep(self.block(number), found[number])
        finally:
            with self._lock:
                events = [self._coming.pop(number) for number in mine if number in self._coming]
            for event in events:
                event.set()
        for number, event in others.items():
            event.wait()
            block = self.block(number)
            kept = self._kept.read(block, [(0, block.num_bytes)])
            if kept is not None:
                found[number] = kept[0]
        return found

    def alone(self, number: int, stopped: threading.Event) -> _core.Buffer | None:
        """Request one block. None if `stopped` was set meanwhile."""
        coming = self._begin(number)
        # Polled: the interpreter cannot exit while a thread waits in the core.
        while not coming.ready():
            if stopped.wait(_POLL_SECONDS):
                return None
        return coming.wait()

    def close(self) -> None:
        """Forget what is on its way."""
        with self._lock:
            self._ahead.clear()

    def _begin_all(
        self, numbers: Sequence[int], *, is_in_order: bool
    ) -> tuple[dict[int, _Coming], dict[int, threading.Event]]:
        """The blocks that this thread waits for, and those that others do."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._coming.clear()
                self._ahead.clear()
            others = {n: self._coming[n] for n in numbers if n in self._coming}
            mine: dict[int, _Coming] = {}
            for number in numbers:
                if number not in others:
                    mine[number] = self._ahead.pop(number, None) or self._begin(number)
            self._coming.update((number, threading.Event()) for number in mine)
            if mine and is_in_order:
                self._begin_ahead(max(mine) + 1)
        return mine, others

    def _begin_ahead(self, number: int) -> None:
        """Request the next blocks before they are read. The further an object was read, the more."""
        self._depth = min(2 * self._depth, _MOST_AHEAD)
        for ahead in range(number, min(number + self._depth, -(-self._source.size // BLOCK_BYTES))):
            block = self.block(ahead)
            if ahead in self._ahead or ahead in self._coming or self._kept.has(block):
                continue
            if (claim := AHEAD.claim(block.num_bytes)) is None:
                return
            self._ahead[ahead] = self._begin(ahead, claim)

    def _begin(self, number: int, claim: Claim | None = None) -> _Coming:
        """Begin to request a block, without bytes that are here already."""
        start, end = number * BLOCK_BYTES, number * BLOCK_BYTES + self.block(number).num_bytes
        first = self._source.first_bytes()
        here = first.slice(start, min(len(first), end) - start) if start < len(first) else _EMPTY
        return _Coming(self._source, here, start + len(here), end, claim)


class _Coming:
    """A block on its way: bytes that are here, and those that were requested."""

    def __init__(
        self, source: Source, here: _core.Buffer, start: int, end: int, claim: Claim | None
    ) -> None:
        self._source, self._here, self._start, self._end = source, here, start, end
        self._claim = claim
        self._fetch: _core.Fetch | None = None
        if isinstance(source, ObjectSource) and start < end:
            self._fetch = source.begin([start], [end - start])

    def ready(self) -> bool:
        """Whether `wait` returns at once, or requests the bytes only then."""
        return self._fetch is None or self._fetch.ready()

    def wait(self) -> _core.Buffer:
        """The block."""
        if self._start == self._end:
            return self._here
        if self._fetch is None:
            rest = self._source.read(self._start, self._end - self._start)
        else:
            with translated(self._source.path, is_open=True):
                rest = self._fetch.wait()
        return _core.Buffer.join([self._here, rest]) if len(self._here) else rest
