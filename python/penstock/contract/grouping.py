"""The base class of writers that pass groups of records to pyarrow: batches of Arrow, row groups of Parquet."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import pyarrow as pa

from penstock.columns.batches import conform, same_columns
from penstock.columns.waiting import Waiting
from penstock.contract.format import Writer
from penstock.storage.base import Sink
from penstock.storage.pyarrow_files import SinkFile, writable


class GroupWriter(Writer):
    """Writes one shard with `_writer`, a writer of pyarrow's, which a subclass opens on `_file`."""

    def __init__(
        self, sink: Sink, schema: pa.Schema, *, group_records: int, group_bytes: int
    ) -> None:
        self._path = sink.path
        self._schema = schema
        self._file = SinkFile(sink)
        self._regroup = Waiting(schema, group_records=group_records, group_bytes=group_bytes)
        self._writer: Any = None

    @abstractmethod
    def _write_group(self, group: Any) -> None:
        """Write one group."""

    @abstractmethod
    def _size_of(self, group: Any) -> int:
        """Return the bytes that a group would take in the file."""

    @property
    def num_bytes(self) -> int:
        """Bytes of output so far, with an estimate for records that wait for their group."""
        return self._file.num_bytes + self._regroup.num_bytes(self._size_of)

    def write(self, batch: pa.RecordBatch) -> None:
        batch = conform(same_columns(batch, self._schema, self._path), self._schema, self._path)
        for group in self._regroup.add(batch):
            self._write_group(group)

    def close(self) -> None:
        """Write the remaining records and the footer. The sink stays open."""
        if self._writer is None:
            return
        for group in self._regroup.rest():
            self._write_group(group)
        with writable(self._path):
            self._writer.close()
        self._writer = None
        self._file.drain()

    def __del__(self) -> None:
        # pyarrow's writer writes a footer when it is deleted, which an aborted sink must not receive.
        if getattr(self, "_writer", None) is not None:
            self._file.abandon()
