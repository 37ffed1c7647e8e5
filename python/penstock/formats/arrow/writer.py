"""Writes Arrow IPC: the options, and a writer that regroups records into batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.contract.grouping import GroupWriter
from penstock.storage.base import Sink
from penstock.storage.pyarrow_files import writable


@dataclass(frozen=True, slots=True)
class ArrowOptions:
    """Options for writing Arrow IPC."""

    compression: str | None = None
    """The codec: "lz4" or "zstd". None does not compress, so that files can be mapped into memory."""
    level: int | None = None
    """The level of zstd; None means zstd's default."""
    stream: bool = False
    """Whether to write the stream format, which has no footer."""
    batch_records: int = 1 << 16
    batch_bytes: int = 16 << 20
    """Bytes of values. A batch ends at either limit."""


class ArrowWriter(GroupWriter):
    """Writes one Arrow IPC file or stream."""

    def __init__(self, sink: Sink, schema: pa.Schema, options: ArrowOptions, threads: int) -> None:
        if options.compression not in (None, "none", "lz4", "zstd"):
            raise ValueError(f"compression must be None, lz4 or zstd, not {options.compression!r}")
        records, num_bytes = options.batch_records, options.batch_bytes
        super().__init__(sink, schema, group_records=records, group_bytes=num_bytes)
        self._known: dict[int, Any] = {}
        self._unify = not options.stream
        with writable(sink.path):
            self._settings = pa.ipc.IpcWriteOptions(
                compression=_codec(options),
                use_threads=threads > 1,
                emit_dictionary_deltas=True,
            )
            start = pa.ipc.new_stream if options.stream else pa.ipc.new_file
            file = pa.PythonFile(self._file, mode="w")
            self._writer = start(file, schema, options=self._settings)

    def _size_of(self, group: Any) -> int:
        file = pa.MockOutputStream()
        with (
            writable(self._path),
            pa.ipc.new_stream(file, self._schema, options=self._settings) as s,
        ):
            s.write_batch(group)
        return file.size()

    def _write_group(self, group: Any) -> None:
        with writable(self._path):
            self._writer.write_batch(self._unified(group) if self._unify else group)

    def _unified(self, group: Any) -> Any:
        """Return a batch whose dictionaries extend the earlier ones, because a file, unlike a stream, cannot replace
        dictionaries."""
        columns = list(group.columns)
        for place, column in enumerate(columns):
            if not pa.types.is_dictionary(column.type):
                continue
            known = self._known.get(place)
            if known is not None and not column.dictionary.equals(known):
                none = pa.DictionaryArray.from_arrays(
                    pa.array([], column.type.index_type), known, ordered=column.type.ordered
                )
                column = pa.chunked_array([none, column]).unify_dictionaries().chunk(1)
            self._known[place] = column.dictionary
            columns[place] = column
        if not columns:
            return group
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _codec(options: ArrowOptions) -> Any:
    if options.compression in (None, "none"):
        return None
    if options.compression == "zstd" and options.level is not None:
        return pa.Codec("zstd", compression_level=options.level)
    return options.compression
