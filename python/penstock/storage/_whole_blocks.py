"""Requests for whole blocks of an object: each is made once, whatever the number of threads and processes, and a reader
that reads in order finds the next blocks on their way."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from penstock import _core
from penstock.engine.locks import Lock
from penstock.storage._cache_files import BLOCK_BYTES, Block
from penstock.storage._object_errors import translated
from penstock.storage._object_source import AHEAD, Claim, ObjectSource
from penstock.storage.base import Source

_MOST_AHEAD = 8
"""Blocks that one object may request ahead while it is read in order."""
_POLL_SECONDS = 0.01
_OTHERS_SECONDS = 5.0
"""How long to wait for a block that another process requests. It may be stopped."""
_EMPTY = _core.Buffer.from_bytes(b"")


class KeepsBlocks(Protocol):
    """Where blocks are kept."""

    def has(self, block: Block) -> bool:
        """Whether there is a file for this block."""
        ...

    def keep(self, block: Block, data: _core.Buffer) -> None:
        """Write a block, if there is room."""
        ...

    def claim(self, block: Block) -> bool:
        """Claim to request a block. False if another process has claimed it."""
        ...

    def release(self, block: Block) -> None:
        """Give up a claim."""
        ...


class WholeBlocks:
    """The blocks of one object."""

    def __init__(self, source: Source, key: bytes, kept: KeepsBlocks, file: _core.File) -> None:
        """`file` has the bytes of the blocks that are kept."""
        self._source = source
        self._file = file
        self._key = key
        self._kept = kept
        self._lock = Lock()
        self._coming: dict[int, threading.Event] = {}
        """Blocks that a thread of this process waits for."""
        self._ahead: dict[int, _Coming] = {}
        self._wanted: weakref.WeakValueDictionary[int, _Coming] = weakref.WeakValueDictionary()
        """What was announced, as long as somebody holds it."""
        self._depth = 1
        self._pid = os.getpid()

    def block(self, number: int) -> Block:
        """A block of this object."""
        start = number * BLOCK_BYTES
        return Block(self._key, number, min(BLOCK_BYTES, self._source.size - start))

    def get(self, numbers: Sequence[int], *, is_in_order: bool) -> dict[int, _core.Buffer]:
        """Request blocks, and keep them. Blocks that others request are read when they are there; some may be left
        out."""
        mine, others = self._begin_all(numbers, is_in_order=is_in_order)
        found: dict[int, _core.Buffer] = {}
        try:
            for number, coming in mine.items():
                found[number] = coming.wait()
                self._kept.keep(self.block(number), found[number])
        finally:
            self._end(mine)
        for number in numbers:
            if number in found:
                continue
            if (event := others.get(number)) is not None:
                event.wait()
            if (data := self._of_others(number)) is not None:
                found[number] = data
        return found

    def alone(self, number: int, stopped: threading.Event) -> None:
        """Request one block, and keep it, unless another process does or `stopped` is set meanwhile."""
        block = self.block(number)
        if not self._kept.claim(block):
            return
        if self._kept.has(block):
            self._kept.release(block)
            return
        coming = self._begin(number)
        try:
            # Polled: the interpreter cannot exit while a thread waits in the core.
            while not coming.ready():
                if stopped.wait(_POLL_SECONDS):
                    return
            self._kept.keep(block, coming.wait())
        finally:
            coming.end()

    def want(self, numbers: Sequence[int]) -> list[object] | None:
        """Begin to request blocks that are read soon. They are given up when nothing holds the result. None if there is
        no room for them now."""
        with self._lock:
            held: list[object] = []
            missing: list[int] = []
            for number in numbers:
                if (begun := self._ahead.get(number) or self._wanted.get(number)) is not None:
                    held.append(begun)
                elif number not in self._coming and not self._kept.has(self.block(number)):
                    missing.append(number)
            claim = AHEAD.claim(sum(self.block(number).num_bytes for number in missing))
            if claim is None:
                return None
            for number in missing:
                if self._kept.claim(self.block(number)):
                    self._wanted[number] = coming = self._begin(number, claim)
                    held.append(coming)
        return held

    def close(self) -> None:
        """Forget what is on its way."""
        with self._lock:
            self._ahead.clear()
            self._wanted.clear()

    def _begin_all(
        self, numbers: Sequence[int], *, is_in_order: bool
    ) -> tuple[dict[int, _Coming], dict[int, threading.Event]]:
        """The blocks that this thread waits for, and those that other threads do."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid = os.getpid()
                self._coming.clear()
                self._ahead.clear()
                self._wanted.clear()
            others = {n: self._coming[n] for n in numbers if n in self._coming}
            mine: dict[int, _Coming] = {}
            for number in numbers:
                begun = self._ahead.pop(number, None) or self._wanted.pop(number, None)
                if begun is not None:
                    mine[number] = begun
                elif number not in others and self._kept.claim(self.block(number)):
                    mine[number] = self._begin(number)
            self._coming.update((number, threading.Event()) for number in mine)
            if is_in_order:
                self._begin_ahead(max(numbers) + 1)
        return mine, others

    def _end(self, mine: Mapping[int, _Coming]) -> None:
        """Let others go on that wait for these blocks."""
        for number, coming in mine.items():
            coming.end()
            with self._lock:
                event = self._coming.pop(number, None)
            if event is not None:
                event.set()

    def _of_others(self, number: int) -> _core.Buffer | None:
        """A block that another thread or process requested. None if it is not there soon."""
        block = self.block(number)
        until = time.monotonic() + _OTHERS_SECONDS
        while True:
            is_free = self._kept.claim(block)
            if is_free:
                self._kept.release(block)
            if self._kept.has(block):
                with suppress(OSError):
                    return self._file.read(number * BLOCK_BYTES, block.num_bytes)
                return None
            if is_free or time.monotonic() > until:
                return None
            time.sleep(_POLL_SECONDS)

    def _begin_ahead(self, number: int) -> None:
        """Request the next blocks before they are read. The further an object was read, the more."""
        self._depth = min(2 * self._depth, _MOST_AHEAD)
        for ahead in range(number, min(number + self._depth, -(-self._source.size // BLOCK_BYTES))):
            block = self.block(ahead)
            begun = (self._ahead, self._wanted, self._coming)
            if any(ahead in some for some in begun) or self._kept.has(block):
                continue
            if (claim := AHEAD.claim(block.num_bytes)) is None:
                return
            if self._kept.claim(block):
                self._ahead[ahead] = self._begin(ahead, claim)

    def _begin(self, number: int, claim: Claim | None = None) -> _Coming:
        """Begin to request a block, without bytes that are here already."""
        start, end = number * BLOCK_BYTES, number * BLOCK_BYTES + self.block(number).num_bytes
        first = self._source.first_bytes()
        here = first.slice(start, min(len(first), end) - start) if start < len(first) else _EMPTY
        end_claim = partial(self._kept.release, self.block(number))
        return _Coming(self._source, here, start + len(here), end, claim, end_claim)


class _Coming:
    """A block on its way: bytes that are here, and those that were requested. No other process requests it until `end`
    is called, or nothing holds this object."""

    def __init__(
        self,
        source: Source,
        here: _core.Buffer,
        start: int,
        end: int,
        claim: Claim | None,
        release: Callable[[], None],
    ) -> None:
        self._source, self._here, self._start, self._end = source, here, start, end
        self._claim = claim
        self._release: Callable[[], None] | None = release
        self._fetch: _core.Fetch | None = None
        if isinstance(source, ObjectSource) and start < end:
            self._fetch = source.begin([start], [end - start])

    def end(self) -> None:
        """Let other processes request the block, which is kept now."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __del__(self) -> None:
        self.end()

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
