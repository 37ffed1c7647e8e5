"""The regions of an Arrow file or stream: its messages, the buffers of one batch, and the footer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.contract.format import check_record
from penstock.contract.regions import (
    MOST,
    Region,
    constant,
    damaged,
    first_of,
    group,
    padding,
    several,
)
from penstock.errors import FormatError, PenstockError
from penstock.limits import Limits
from penstock.storage.arrow_messages import (
    BATCH,
    CONTINUATION,
    DICTIONARY,
    MAGIC,
    SCHEMA,
    Footer,
    Message,
    read_footer,
    read_layout,
    read_message,
)
from penstock.storage.base import Source

_CODECS = {None: "not compressed", 0: "lz4 frame", 1: "zstd"}


def file_regions(source: Source, record: int, limits: Limits) -> Iterator[Region]:
    """The regions of a file or stream."""
    if source.read(0, len(MAGIC)).to_bytes() != MAGIC:
        yield from _Messages(source, record, limits, None).regions(0)
        return
    yield constant(source.read(0, 6).to_bytes(), 0, "magic", MAGIC)
    yield Region(6, 2, "padding")
    try:
        footer = read_footer(_Messages(source, record, limits, None).read, source.size, limits)
    except PenstockError:
        yield from _Messages(source, record, limits, None).regions(8)
        raise
    messages = _Messages(source, record, limits, footer)
    yield from messages.regions(8)
    end = source.size - 10
    note = f"{len(footer.dictionaries)} dictionaries, {len(footer.batches)} record batches"
    yield Region(footer.start, end - footer.start, "footer", None, note)
    yield Region(end, 4, "footer length", end - footer.start)
    yield constant(source.read(end + 4, 6).to_bytes(), end + 4, "magic", MAGIC)


class _Messages:
    """The messages of a file, from the schema to the end-of-stream marker."""

    def __init__(self, source: Source, record: int, limits: Limits, footer: Footer | None) -> None:
        self._source = source
        self._record = record
        self._limits = limits
        self._footer = footer
        self._end = source.size if footer is None else footer.start
        self._waiting: list[Message] = []
        self._num_records = self._num_batches = self._num_shown = 0
        self._is_damaged = False

    def read(self, start: int, length: int) -> bytes:
        return self._source.read(start, length).to_bytes()

    def regions(self, start: int) -> Iterator[Region]:
        at = start
        while True:
            try:
                message = read_message(self.read, at, self._end, self._limits)
            except FormatError as error:
                yield from self._batches()
                after = self._after(at)
                if after is None:
                    raise
                self._is_damaged = True
                yield damaged(error.at(byte=at), at, after)
                at = after
                continue
            if message is None:
                break
            yield from self._seen(message)
            at = message.end
        yield from self._batches()
        if at < self._end:
            size = 8 if self.read(at, 4) == CONTINUATION else 4
            yield Region(at, min(size, self._end - at), "end of stream")
            yield from padding(at + size, self._end, "not described")
        if not self._is_damaged:
            check_record(self._record, self._num_records)

    def _after(self, at: int) -> int | None:
        """The start of the next message according to the footer. None without a footer, or after the last message."""
        if self._footer is None:
            return None
        blocks = (*self._footer.dictionaries, *self._footer.batches)
        return min((block[0] for block in blocks if block[0] > at), default=None)

    def _seen(self, message: Message) -> Iterator[Region]:
        """Yield the region of a message, or keep the message, to be shown later in one region with other batches."""
        if message.kind != BATCH:
            yield from self._batches()
            self._num_shown += 1
            if self._num_shown <= MOST:
                yield self._one(message, _name(message))
            return
        first, self._num_records = self._num_records, self._num_records + message.num_records
        if first <= self._record < self._num_records:
            yield from self._batches()
            one = self._one(message, f"record batch {self._num_batches}")
            yield replace(one, note=f"records {first} to {self._num_records - 1}")
        else:
            self._waiting.append(message)
        self._num_batches += 1

    def _batches(self) -> Iterator[Region]:
        """Yield one region for the batches that were kept."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            start, count = waiting[0].start, len(waiting)
            note = f"{sum(message.num_records for message in waiting)} records"
            first = self._num_batches - count
            yield from several(start, waiting[-1].end - start, first, count, "record batch", note)

    def _one(self, message: Message, name: str) -> Region:
        length = message.end - message.start
        return group(name, message.start, length, self._parts(message))

    def _parts(self, message: Message) -> Iterator[Region]:
        at = message.start
        head = self.read(at, 8)
        if head[:4] == CONTINUATION:
            yield Region(at, 4, "continuation", head[:4].hex(" "))
            at += 4
        yield Region(at, 4, "metadata length", message.body - at - 4)
        yield Region(at + 4, message.body - at - 4, "metadata")
        if message.end > message.body:
            length = message.end - message.body
            is_batch = message.kind == BATCH
            buffers = first_of(self._buffers(message), message.end, "buffers") if is_batch else ()
            between = "padding" if is_batch else ""
            yield group("body", message.body, length, buffers, between=between)

    def _buffers(self, message: Message) -> Iterator[Region]:
        found = read_layout(self.read, message)
        codec = _CODECS.get(found.codec, "another codec")
        for number, (offset, length) in enumerate(found.buffers):
            yield Region(message.body + offset, length, f"buffer {number}", note=codec)


def _name(message: Message) -> str:
    if message.kind == DICTIONARY:
        return f"dictionary batch of id {message.dictionary}"
    return "schema message" if message.kind == SCHEMA else f"message of kind {message.kind}"
