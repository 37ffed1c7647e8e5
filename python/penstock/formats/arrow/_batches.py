"""Finds the record batches of an Arrow file or stream by their headers."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.contract.format import Options, SkippedRegion
from penstock.engine.locks import Lock
from penstock.errors import FormatError, PenstockError
from penstock.limits import Limits
from penstock.storage.arrow_messages import (
    BATCH,
    DICTIONARY,
    Footer,
    Message,
    Read,
    read_message,
    walk_stream,
)
from penstock.storage.pyarrow_files import Bytes, Splice, translated


class Entry(NamedTuple):
    """A record batch: its number, its number in the footer (different if batches were skipped), its first record and
    its message. If it is in a stream, also the dictionary messages that were sent for it."""

    number: int
    block: int
    first_record: int
    message: Message
    dictionaries: tuple[Message, ...] = ()


class Batches:
    """The batches of a file or stream, which are found as needed and then cached. `footer` is None for a stream, whose
    messages are read in order. `start` is the schema message of a stream."""

    def __init__(
        self, data: Bytes, options: Options, footer: Footer | None, start: Message | None
    ) -> None:
        self._data = data
        self._path = data.source.path
        self._size = data.source.size
        self._options = options
        self._footer = footer
        self._start = start
        self._lock = Lock()
        self._entries: list[Entry] = []
        self._finding = self._find()
        self._failure: FormatError | None = None
        self.skipped: list[SkippedRegion] = []
        """The regions skipped so far, in file order."""

    def __iter__(self) -> Iterator[Entry]:
        """Yield the batches in order. If the next batch cannot be found, the damage mode decides what happens."""
        number = 0
        while (entry := self._entry(number)) is not None:
            yield entry
            number += 1

    def _find(self) -> Iterator[Entry]:
        number = first = 0
        for block, message, dictionaries in self._found():
            yield Entry(number, block, first, message, dictionaries)
            number, first = number + 1, first + message.num_records

    # Complexity: files with a footer and streams without a footer, in one loop.
    def _found(self) -> Iterator[tuple[int, Message, tuple[Message, ...]]]:
        if self._footer is not None:
            for block, (start, metadata, body) in enumerate(self._footer.batches):
                message = self._file_message(start, start + metadata + body)
                if message is not None:
                    yield block, message, ()
            return
        current: dict[int, tuple[Message, ...]] = {}
        unused: Message | None = None
        try:
            for message in walk_stream(self._data.read, self._size, self._options.limits):
                if message.kind == DICTIONARY:
                    before = current.get(message.dictionary, ()) if message.is_delta else ()
                    # Keep the order of arrival, because one dictionary may use another.
                    current.pop(message.dictionary, None)
                    current[message.dictionary] = (*before, message)
                    unused = message
                elif message.kind == BATCH:
                    unused = None
                    yield 0, message, tuple(m for group in current.values() for m in group)
            if unused is not None:
                # No batch follows that uses these dictionaries. Reading such a batch would verify
                # them.
                self._check_dictionaries(unused, [m for g in current.values() for m in g])
        except FormatError as error:
            # Without a footer, messages after a broken header cannot be found.
            self._pass_over(error, error.byte if error.byte is not None else 0, self._size)

    def _file_message(self, start: int, end: int) -> Message | None:
        """Return the header of the batch that the footer places at `start`, or None if it was skipped."""
        assert self._footer is not None
        try:
            message = read_message(self._data.read, start, self._footer.start, self._options.limits)
            if message is None or message.kind != BATCH:
                raise FormatError("there is no batch where the footer places one", byte=start)
            return message
        except FormatError as error:
            self._pass_over(error, start, end)
            return None

    def _pass_over(self, error: FormatError, start: int, end: int) -> None:
        if self._options.damage == "error":
            raise error.at(file=self._path)
        region = SkippedRegion(self._path, start, end, None, error.message)
        if region not in self.skipped:  # after Ctrl-C, the search starts again and finds it again
            self.skipped.append(region)

    def _entry(self, number: int) -> Entry | None:
        """Return the entry of one batch, or None if there are fewer."""
        with self._lock, translated(self._path):
            if self._lock.was_cut_short():
                self._entries, self._finding = [], self._find()
            while len(self._entries) <= number:
                if self._failure is not None:
                    raise self._failure
                try:
                    entry = next(self._finding, None)
                except FormatError as error:
                    # The generator has ended, so raise this error again for later batches.
                    self._failure = error
                    raise
                except BaseException:
                    # The generator has ended, although there may be more batches.
                    self._entries, self._finding = [], self._find()
                    raise
                if entry is None:
                    return None
                self._entries.append(entry)
            return self._entries[number]

    @property
    def all(self) -> list[Entry]:
        number = len(self._entries)
        while self._entry(number) is not None:
            number = len(self._entries)
        return self._entries

    @property
    def num_records(self) -> int:
        """The number of records. The first call reads the header of every batch."""
        if not self.all:
            return 0
        last = self._entries[-1]
        return last.first_record + last.message.num_records

    def _check_dictionaries(self, last: Message, messages: list[Message]) -> None:
        """Verify dictionaries that no batch follows."""
        with placed(self._path, last):
            check_sizes(self._data.read, messages, self._options.limits)
            for _ in stream_of(self._data, self._start, messages, ()):
                raise FormatError("a new batch appeared")  # the file changed


@contextmanager
def placed(path: str, message: Message) -> Generator[None, None, None]:
    """Add the position of a message to errors about its bytes."""
    try:
        with translated(path):
            yield
    except PenstockError as error:
        raise error.at(byte=message.start) from error.__cause__


def stream_of(
    data: Bytes, start: Message | None, messages: Iterable[Message], places: tuple[int, ...]
) -> Any:
    """Open a pyarrow stream that consists of the schema message `start` and some other messages."""
    assert start is not None, "a stream has a schema"
    ranges = [(piece.start, piece.end - piece.start) for piece in (start, *messages)]
    return pa.ipc.open_stream(
        pa.PythonFile(Splice(data, ranges), mode="r"), options=read_options(places)
    )


def read_options(places: tuple[int, ...]) -> Any:
    """Return pyarrow's options for reading columns, by their positions."""
    # Chunks are already read in parallel, so pyarrow's threads would only compete.
    return pa.ipc.IpcReadOptions(included_fields=sorted(places), use_threads=False)


def check_sizes(read: Read, messages: Iterable[Message], limits: Limits) -> None:
    """Raise FormatError for buffers outside their message, and LimitError if the stated sizes of inflated buffers are
    too large together, before memory is allocated."""
    total = 0
    for message in messages:
        if not 0 <= message.reach <= message.end - message.body:
            raise FormatError("a buffer is outside its batch", byte=message.start)
        for at, length in message.compressed:
            start = message.body + at
            if length < 8:
                raise FormatError("a compressed buffer is too short", byte=start, found=length)
            claim = int.from_bytes(read(start, 8), "little", signed=True)
            total += max(claim, 0)
    limits.check("batch_bytes", total)
