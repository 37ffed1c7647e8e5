"""Writes the table of a manifest, group by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.manifests.manifest import Manifest
from penstock.manifests.table import GROUP_SHARDS, SCHEMA, TYPES, Footer, digest_of_place
from penstock.storage.base import FileState, Sink
from penstock.storage.manifest_mark import KEY
from penstock.storage.pyarrow_files import SinkFile
from penstock.storage.urls import is_url


class Row(NamedTuple):
    """What a manifest says of one shard, under the name that it has there."""

    path: str
    format: str
    records: int
    state: FileState
    checksum: int
    sidecar: str | None


class TableWriter:
    """A manifest being written."""

    def __init__(self, sink: Sink) -> None:
        import hashlib  # costs 3 ms at import, and is rarely needed

        import pyarrow.parquet as pq

        self._sink = sink
        self._file = SinkFile(sink)
        self._writer: Any = pq.ParquetWriter(
            self._file,
            SCHEMA,
            compression="zstd",
            use_dictionary=["format"],
            write_page_checksum=True,
            store_schema=False,
        )
        self._waiting: list[dict[str, Any]] = []
        self._groups: list[int] = []
        self._facts = hashlib.blake2b(digest_size=16)
        self._has_objects = False
        self.num_records = 0
        self.num_bytes = 0
        self.num_shards = 0

    def add(self, row: Row) -> None:
        state = row.state
        self._waiting.append(
            {
                "path": row.path,
                "format": row.format,
                "bytes": state.size,
                "records": row.records,
                "first_record": self.num_records,
                "etag": state.etag,
                "version": state.version,
                "modified_ns": state.modified_ns,
                "checksum": row.checksum,
                "index": row.sidecar,
            }
        )
        self.num_shards += 1
        self.num_records += row.records
        self.num_bytes += state.size
        self._has_objects |= is_url(row.path)
        name = row.path.replace("\\", "/").rsplit("/", 1)[-1]
        facts = f"{name}\0{state.size}\0{row.records}\0".encode("utf-8", "replace")
        self._facts.update(facts + row.checksum.to_bytes(4, "little"))
        if len(self._waiting) == GROUP_SHARDS:
            self._flush()

    def finish(
        self,
        path: str,
        schema: pa.Schema,
        types: str,
        *,
        has_overlays: bool,
        hive: bool | str = False,
    ) -> None:
        """Write the footer, and give the file its name."""
        if self._waiting:
            self._flush()
        footer = Footer(
            tuple(self._groups),
            self.num_bytes,
            types if types in TYPES else TYPES[0],
            schema,
            self._has_objects,
            hive,
            has_overlays,
            digest_of_place(path),
            "" if has_overlays else self._facts.hexdigest(),
        )
        self._writer.add_key_value_metadata({KEY.decode(): footer.to_json().decode()})
        self._writer.close()
        self._file.drain()
        self._sink.commit()

    def abort(self) -> None:
        self._file.abandon()
        self._sink.abort()

    def _flush(self) -> None:
        """Write a row group."""
        table = pa.Table.from_pylist(self._waiting, SCHEMA)
        self._waiting = []
        self._writer.write_table(table, row_group_size=GROUP_SHARDS)
        self._groups.append(self.num_records - sum(self._groups))


class OldRows:
    """The rows of the manifest that is brought up to date, by the names of the shards."""

    def __init__(self, old: Manifest | None) -> None:
        self._table = None
        if old is not None and not old.is_moved:
            self._table = pa.Table.from_batches(old.stored())
            self._paths: Any = self._table.column("path").combine_chunks()

    def of(self, names: Sequence[str]) -> Iterator[Row | None]:
        """The old row of each shard; None for a new shard."""
        if self._table is None:
            yield from (None for _ in names)
            return
        import pyarrow.compute as pc  # slow to import

        places: Any = pc.index_in(pa.array(names, pa.string()), value_set=self._paths)
        rows = self._table.take(places.drop_null()).to_pylist()
        found = iter(rows)
        for place in places:
            yield None if not place.is_valid else _row(next(found))


def _row(values: dict[str, Any]) -> Row:
    state = FileState(values["bytes"], values["etag"], values["version"], values["modified_ns"])
    path, kind, records = values["path"], values["format"], values["records"]
    return Row(path, kind, records, state, values["checksum"], values["index"])
