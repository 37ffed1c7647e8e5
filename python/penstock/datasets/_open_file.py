"""An open file of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.contract.format import Chunk, Format, Reader
from penstock.contract.wrapped import WrappedReader
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
