"""One open file of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.contract.added import AddedReader
from penstock.contract.format import Chunk, Format, Reader
from penstock.overlay.reader import OverlaidReader
from penstock.storage.base import Source


class OpenFile(NamedTuple):
    reader: Reader
    format: Format
    source: Source
    is_verified: bool
    """Whether records are verified when they are read."""
    compares: Callable[[Chunk[Any] | None], bool]

    @property
    def own(self) -> Reader:
        reader = self.reader
        while isinstance(reader, (AddedReader, OverlaidReader)):
            reader = reader.base
        return reader
