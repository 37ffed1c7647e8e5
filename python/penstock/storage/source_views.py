"""Sources that show a part of another source, or check what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock import _core
from penstock.storage.base import FileState, Source

if TYPE_CHECKING:
    import pyarrow as pa


class SourceView(Source):
    """A part or a checked view of another source. Subclasses implement `read`; the rest is passed on to that source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.path = source.path
        self.size = source.size
        self.storage = source.storage
        self.announces = source.announces

    @property
    def tag(self) -> str:
        return self._source.tag

    def want(self, starts: Sequence[int], lengths: Sequence[int]) -> Sequence[object] | None:
        return self._source.want(starts, lengths)

    def read_in_order(self, start: int = 0, end: int | None = None) -> None:
        self._source.read_in_order(start, end)

    def check_unchanged(self, *, may_grow: bool) -> None:
        self._source.check_unchanged(may_grow=may_grow)

    def check_read(self, *, may_grow: bool) -> None:
        self._source.check_read(may_grow=may_grow)

    def identity(self) -> tuple[int, int, int, int]:
        return self._source.identity()

    def file_state(self) -> FileState:
        return self._source.file_state()

    def state_name(self) -> str | None:
        return self._source.state_name()

    def was_rewritten(self) -> bool:
        return self._source.was_rewritten()

    def was_replaced(self) -> bool:
        return self._source.was_replaced()

    def close(self) -> None:
        self._source.close()


class FrontPart(SourceView):
    """The first bytes of a file: those before an append that is not finished, or before the rest of a part that is read."""

    def __init__(self, source: Source, size: int) -> None:
        super().__init__(source)
        self.size = size

    def read(self, start: int, length: int) -> _core.Buffer:
        return self._source.read(start, max(0, min(length, self.size - start)))

    def gather(self, starts: pa.Array, lengths: pa.Array) -> _core.Buffer:
        return self._source.gather(starts, lengths)
