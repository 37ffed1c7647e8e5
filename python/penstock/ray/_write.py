"""`write`: the records of a dataset of Ray Data, as shards of any format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Unpack

import pyarrow as pa
from ray.data import Dataset, Datasink

from penstock.columns.types import own_types
from penstock.contract.keywords import WriteOptions
from penstock.contract.summary import Summary
from penstock.errors import SchemaError
from penstock.ray._blocks import SAME_HINT, agreed, in_schema, own_table, own_type
from penstock.ray._errors import own_errors
from penstock.ray._targets import FolderTarget, StoreTarget, Target, Written
from penstock.storage.paths import index_option
from penstock.storage.places import storage_of
from penstock.storage.urls import refuse_web_target
from penstock.verbs.manifest.last import Last
from penstock.verbs.write.write import check_cuts, format_and_options


def write(
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    shared_paths: bool = False,
    format: str | None = None,
    compression: str | None = None,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
    index: bool | str = True,
    overwrite: bool = False,
    exact: bool = False,
    manifest: str | os.PathLike[str] | None = None,
    threads: int = 1,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **format_options: Unpack[WriteOptions],
) -> Summary:
    """Write a dataset of Ray Data. Each write task makes one shard, or as many as the limits demand.

    Each record is written exactly once, however often Ray runs a task again, and nothing is left of other attempts. On a
    file system, no shard has its name before all are written. In a store, shards appear one by one: pass `manifest=`,
    which is written last, and open that.

    Args:
        dataset: the records. Use `dataset.repartition(n)` for n shards.
        path: as for `penstock.write`: `x.tfrecord` becomes `x-00000-of-00010.tfrecord` and so on. In a store, the names
            have a token of the call and the number of the task instead: `x-1f9a02c7-000004.tfrecord`.
        shared_paths: whether all machines of the cluster see this path. Otherwise, a path of this machine is written by
            tasks on this machine.
        overwrite: replace the set of shards with such names, even if it has more shards. The old set is removed when
            the new one is complete.
        threads: the threads of each task.
        concurrency: as for `ray.data.Dataset.write_datasink`.
        ray_remote_args: as for `ray.data.Dataset.write_datasink`.
        format, compression, shard_records, shard_bytes, index, exact, manifest, storage, storage_options: as for
            `penstock.write`. The limits are per task.
        **format_options: options of the format.

    Returns:
        The paths in the order of the tasks, the number of records, their bytes on disk, and notes on changed values.

    Raises:
        FileExistsError: there is such a set and `overwrite` is False.
        BlockingIOError: another process of this machine writes this set.
        SchemaError: a value does not fit the format, or blocks have different columns or types.
        UnsupportedError: this process is not on a machine of the cluster, and `path` is of this machine.

    Example:
        >>> import penstock.ray, ray  # doctest: +SKIP
        >>> made = penstock.ray.write(ray.data.range(1000), "numbers.tfrecord")  # doctest: +SKIP
        >>> made.num_records  # doctest: +SKIP
        1000
    """
    name = os.fspath(path)
    refuse_web_target(name)
    _, shard_records, shard_bytes = check_cuts(None, shard_records, shard_bytes)
    kind, options = format_and_options(name, format, compression, dict(format_options), exact=exact)
    last = Last(manifest, name, storage, storage_options, overwrite=overwrite)
    place = storage_of(name, storage, storage_options)
    how = {
        **{key: value for key, value in format_options.items() if key != "compression"},
        "format": kind.info.name, "compression": getattr(options, "compression", None),
        "shard_records": shard_records, "shard_bytes": shard_bytes,
        "index": index_option(index), "exact": exact, "threads": threads,
    }  # fmt: skip
    target = (FolderTarget if place.changes_in_place else StoreTarget)(name, kind, place, how)
    if not overwrite:
        target.refuse_existing()
    is_here = place.is_here(name) and not shared_paths
    with target.attempts():
        sink = _Sink(target, is_distributed=not is_here)
        with own_errors():
            dataset.write_datasink(
                sink, ray_remote_args=dict(ray_remote_args or {}), concurrency=concurrency
            )
        found = sorted(sink.found, key=lambda one: one.task) or [_nothing(target, sink, dataset)]
        check_alike(found)
        finals = target.publish(found, overwrite=overwrite)
    notes = tuple(dict.fromkeys(note for one in found for note in one.notes))
    num_records, num_bytes = (
        sum(one.num_records for one in found),
        sum(one.num_bytes for one in found),
    )
    return last.of(Summary(tuple(finals), num_records, num_bytes, notes))


class _Sink(Datasink[Written | None]):
    def __init__(self, target: Target, *, is_distributed: bool) -> None:
        self._target = target
        self._is_distributed = is_distributed
        self.schema: pa.Schema | None = None
        self.found: list[Written] = []

    @property
    def supports_distributed_writes(self) -> bool:
        return self._is_distributed

    def get_name(self) -> str:
        return "penstock"

    def on_write_start(self, schema: Any = None) -> None:
        if isinstance(schema, pa.Schema):
            self.schema = _own_schema(schema)

    def write(self, blocks: Iterable[Any], ctx: Any) -> Written | None:
        """Write the blocks of a task. This runs on a worker."""
        tables = (table for table in map(own_table, blocks) if table.num_rows)
        first = next(tables, None)
        if first is None:
            return None
        # Ray's pickle of a schema loses penstock's types.
        schema = agreed(first, None if self.schema is None else own_types(self.schema))

        def batches() -> Iterator[pa.RecordBatch]:
            for table in chain([first], tables):
                yield from in_schema(table, schema)

        return self._target.write(ctx.task_idx, schema, batches)

    def on_write_complete(self, write_result: Any) -> None:
        self.found = [one for one in write_result.write_returns if one is not None]


def _own_schema(schema: pa.Schema) -> pa.Schema:
    fields = [field.with_type(own_type(field.type)) for field in schema]
    return pa.schema(fields)


def _nothing(target: Target, sink: _Sink, dataset: Dataset) -> Written:
    """Write one shard without records."""
    schema = sink.schema
    if schema is None:
        found = dataset.schema()
        base = None if found is None else found.base_schema
        schema = _own_schema(base) if isinstance(base, pa.Schema) else pa.schema([])
    return target.write(0, schema, lambda: ())


def check_alike(found: list[Written]) -> None:
    """Raise SchemaError if tasks wrote other columns or types than the first."""
    first = found[0].schema
    for other in found[1:]:
        if other.schema.equals(first):
            continue
        names = [*first.names, *other.schema.names]
        for name in names:
            here, there = first.get_field_index(name), other.schema.get_field_index(name)
            types = [
                schema.field(at).type if at >= 0 else None
                for schema, at in ((first, here), (other.schema, there))
            ]
            if types[0] != types[1]:
                raise SchemaError(
                    "blocks have other types for this column",
                    field=name,
                    expected=types[0],
                    found=types[1],
                    hint=SAME_HINT,
                )
