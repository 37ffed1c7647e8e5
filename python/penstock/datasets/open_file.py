"""An open file of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock import _core
from penstock.columns.numbers import as_arrow
from penstock.contract.format import Chunk, Format, Reader
from penstock.contract.wrapped import WrappedReader
from penstock.framing.read.framed import FramedReader
from penstock.storage.base import Source


class OpenFile(NamedTuple):
    """A file with its reader and format."""

    reader: Reader
    format: Format
    source: Source
    is_verified: bool
    """Whether records are verified when they are read."""
    compares: Callable[[Chunk[Any] | None], bool]

    @property
    def own(self) -> Reader:
        """The reader of the file without added columns."""
        reader = self.reader
        while isinstance(reader, WrappedReader):
            reader = reader.base
        return reader


def checksum_of(reader: Reader) -> int:
    """The CRC-32C of the checksums of all records of a file; 0 if there is no index."""
    if not isinstance(reader, FramedReader):
        return 0
    return _core.Buffer.from_values(as_arrow(reader.index.checksums)).crc32c()
