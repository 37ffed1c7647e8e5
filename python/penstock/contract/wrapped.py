"""A reader that shows the records of another reader with other columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.contract.format import Chunk, Readable, Reader, Stretch
from penstock.storage.skipped import SkippedFile


class WrappedReader(Reader):
    """The base class of readers with the records of `base`, in the same chunks, but other columns."""

    base: Reader

    @property
    def num_records(self) -> int:
        return self.base.num_records

    @property
    def compression(self) -> str | None:
        return self.base.compression

    @property
    def lacks_checksums(self) -> bool:
        return self.base.lacks_checksums

    @property
    def skipped_files(self) -> Sequence[SkippedFile]:
        return self.base.skipped_files

    @property
    def notes(self) -> Sequence[str]:
        return self.base.notes

    def chunks(self) -> Iterator[Chunk[Any]]:
        return self.base.chunks()

    def found_by(self, threads: int) -> Iterator[Stretch | Callable[[], Sequence[Stretch]]]:
        return self.base.found_by(threads)

    def spans(self) -> Iterator[Chunk[Any]]:
        return self.base.spans()

    def found_in(self, part: Chunk[Any]) -> Iterator[Chunk[Any]]:
        return self.base.found_in(part)

    def readable(self, chunk: Chunk[Any]) -> Readable | None:
        return self.base.readable(chunk)

    def place(self, record: int) -> tuple[str, int, int] | None:
        return self.base.place(record)

    def numbers(self, chunk: Chunk[Any]) -> np.ndarray:
        return self.base.numbers(chunk)

    def compares(self, chunk: Chunk[Any] | None) -> bool:
        return self.base.compares(chunk)

    def checks(self) -> Iterable[Callable[[], None]]:
        return self.base.checks()

    def options_alike(self) -> Any:
        return self.base.options_alike()

    def close(self) -> None:
        self.base.close()
