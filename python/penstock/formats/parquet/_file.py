"""An open Parquet file: its bytes, its footer, and pyarrow's readers of it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

from penstock.formats.parquet._footer import ColumnChunk, Footer, check_nesting, too_deep
from penstock.storage.pyarrow_files import Bytes, Pool

_BUFFER_BYTES = 1 << 18
_TOGETHER_BYTES = 128 << 20
"""Up to this size, a row group of an object store is read with few requests."""
WHOLE_BYTES = 16 << 20
"""In files up to this size, each column is read in one piece."""


class File:
    """The file, its metadata as pyarrow has it, and the schema that is stored in it."""

    def __init__(
        self, data: Bytes, data_end: int, nesting: int, *, limits_depth: bool, verify: bool
    ) -> None:
        """`nesting`: how deep a schema may be. pyarrow limits it if it has that option (`limits_depth`)."""
        self.bytes = data
        self._data_end = data_end
        self._nesting = nesting
        self._how = {"schema_depth_limit": nesting + 1} if limits_depth else {}
        self._verify = verify
        self._footer: Footer | None = None
        self._columns: dict[int, list[ColumnChunk]] = {}
        self.metadata: Any = None
        if not limits_depth:
            check_nesting(self.footer_bytes(), nesting)
        opened = self.open()
        self.metadata = opened.metadata
        self.schema: Any = opened.schema_arrow
        # A weak reference, because a file that nothing uses any more must be closed at once.
        self._readers: Pool[Any] = Pool(partial(_opened_again, weakref.ref(self)))
        """Making one for each row group takes as long as decoding a small one."""

    def open(self, **how: Any) -> Any:
        """Return a new pyarrow reader. The footer is parsed only the first time."""
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(
                self.bytes.file(),
                metadata=self.metadata,
                # Columns are read one by one, in small reads, because a row group may be larger
                # than memory. In a small file columns are read whole, so no page can claim more
                # bytes than its column has. In object stores each read takes a round trip, so the
                # columns of a row group are requested together, unless they may be too large.
                pre_buffer=self.bytes.source.storage is not None
                and self._largest_group() <= _TOGETHER_BYTES,
                buffer_size=0 if self.bytes.source.size <= WHOLE_BYTES else _BUFFER_BYTES,
                page_checksum_verification=self._verify,
                **self._how,
                **how,
            )
        except OSError as error:
            if "too deeply nested" in str(error):
                raise too_deep(self._nesting).at(byte=self._data_end) from None
            raise

    def batches(self, group: int, names: list[str] | None, step: int) -> Iterator[Any]:
        """Yield the rows of a row group in batches of `step` rows; None for all columns."""
        # A reader that requests row groups together keeps their bytes as long as it lives.
        is_kept = self.bytes.source.storage is None
        with self._readers.borrow() if is_kept else nullcontext(self.open()) as reader:
            yield from reader.iter_batches(
                step, row_groups=[group], columns=names, use_threads=False
            )

    def _largest_group(self) -> int:
        if self.metadata is None:
            return 0  # the footer is read now, and no group
        groups = range(self.metadata.num_row_groups)
        return max((self.metadata.row_group(n).total_byte_size for n in groups), default=0)

    def footer_bytes(self) -> bytes:
        """The footer as it is stored."""
        return self.bytes.read(self._data_end, self.bytes.source.size - 8 - self._data_end)

    def columns_of(self, group: int) -> list[ColumnChunk]:
        """The columns of a row group, by penstock's own parser of footers."""
        if (found := self._columns.get(group)) is None:
            if self._footer is None:
                self._footer = Footer(self.footer_bytes())
            found = self._columns[group] = self._footer.columns(group)
        return found

    def close(self) -> None:
        self._readers.clear()
        self.bytes.close()


def _opened_again(file: weakref.ref[File]) -> Any:
    found = file()
    assert found is not None, "its method lends readers"
    return found.open()
