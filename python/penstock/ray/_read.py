"""`read`: a dataset of Ray Data of the records of a dataset of penstock."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from penstock.conditions import columns_of_expression
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.datasets.tasks import ReadTask as OwnTask
from penstock.limits import checked_count
from penstock.ray._blocks import ray_schema, ray_table

_LEAST_BYTES = 8 << 20
_MOST_BYTES = 128 << 20
_BLOCK_BYTES = 128 << 20
_NUM_TASKS = 200
"""A dataset is cut into about so many tasks. Ray runs neighbours as one if it needs fewer."""


def read(
    source: Any,
    *,
    shared_paths: bool = False,
    target_bytes: int | None = None,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: dict[str, Any] | None = None,
    **open: Any,
) -> ray.data.Dataset:
    """Read a dataset with Ray Data, in any format that `penstock.open` reads.

    The index says how many records each block has, and the schema is known, so `count()` and `schema()` read no data.
    `select_columns`, `limit` and `filter(expr=…)` are done while reading: other columns are not decoded, and row groups
    that cannot match are not read. A large file is read by several tasks. Blocks are Arrow tables. Tensors have Ray's type,
    so `iter_batches` and `map_batches` get NumPy arrays of their shape; encoded images are bytes, which
    `penstock.decode_images` decodes.

    Args:
        source: as for `penstock.open`, or an open `penstock.Dataset`, also a view of one.
        shared_paths: whether all machines of the cluster see the files under these paths. Otherwise, files of this
            machine are read by tasks on this machine. Objects in stores are read by all machines, with their own
            credentials.
        target_bytes: the stored bytes of the smallest tasks; None for a 200th of the data, but 8 to 128 MiB.
        override_num_blocks: as for `ray.data.read_datasource`, like `concurrency`.
        ray_remote_args: further arguments of `ray.data.read_datasource`, such as `{"num_cpus": 2}`.
        **open: as for `penstock.open`.

    Raises:
        PenstockError: as `penstock.open`, and later, when the records are read.
        TypeError: options of `open` are given for a dataset that is open.

    Example:
        >>> import penstock as ps, penstock.ray  # doctest: +SKIP
        >>> _ = ps.write(
        ...     {"label": range(1000)}, "numbers.tfrecord", overwrite=True
        ... )  # doctest: +SKIP
        >>> penstock.ray.read("numbers.tfrecord").count()  # doctest: +SKIP
        1000
    """
    if isinstance(source, Dataset):
        if open:
            raise TypeError(f"the dataset is open, so {min(open)}= says nothing; leave it out")
        dataset = source
    else:
        dataset = open_dataset(source, **open)
    tasks = _planned(dataset, target_bytes, override_num_blocks)
    is_here = not shared_paths and any(
        dataset.files.storage.is_here(path) for path in dataset.paths[:1]
    )
    made = _Source(tasks, dataset.schema, is_distributed=not is_here)
    return ray.data.read_datasource(
        made,
        override_num_blocks=override_num_blocks,
        concurrency=concurrency,
        **(ray_remote_args or {}),
    )


def _planned(
    dataset: Dataset, target_bytes: int | None, override_num_blocks: int | None
) -> list[OwnTask]:
    if target_bytes is not None:
        return dataset.tasks(checked_count("target_bytes", target_bytes, 1))
    total = dataset.files.total_bytes
    target = min(max(total // _NUM_TASKS, _LEAST_BYTES), _MOST_BYTES)
    if override_num_blocks is not None:
        target = min(target, max(total // override_num_blocks, 1))
    return dataset.tasks(target)


class _Source(Datasource):
    """Reads tasks. All is planned when it is made, because Ray asks several times, and may pickle it."""

    def __init__(self, tasks: list[OwnTask], schema: pa.Schema, *, is_distributed: bool) -> None:
        super().__init__()
        self._tasks = tasks
        self._schema = schema
        self._is_distributed = is_distributed
        self._projection_map: dict[str, str] | None = None

    def __reduce__(self) -> Any:
        return unpickled, (pickle.dumps((_Source, self.__dict__)),)

    def get_name(self) -> str:
        return "Penstock"

    @property
    def supports_distributed_reads(self) -> bool:
        return self._is_distributed

    def supports_projection_pushdown(self) -> bool:
        return True

    def supports_predicate_pushdown(self) -> bool:
        return True

    def apply_predicate(self, predicate_expr: Any) -> _Source:
        """Add a condition to the tasks. The source itself is returned if Ray has to evaluate the condition."""
        expression = predicate_expr.to_pyarrow()
        if not _has_plain_columns(expression, self._schema):
            return self
        other = copy(self)
        other._predicate_expr = predicate_expr
        if self._predicate_expr is not None:
            other._predicate_expr = self._predicate_expr & predicate_expr
        other._tasks = [task.filter(expression) for task in self._tasks]
        return other

    def estimate_inmemory_data_size(self) -> int:
        return sum(task.num_bytes for task in self._tasks)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,
    ) -> list[ReadTask]:
        columns = self._get_data_columns()
        schema = self._schema
        if columns is not None:
            columns = [name for name in schema.names if name in columns]
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)
        schema = ray_schema(schema)
        context = data_context or DataContext.get_current()
        block_bytes = context.target_max_block_size or _BLOCK_BYTES
        made: list[ReadTask] = []
        for tasks in _groups(self._tasks, parallelism):
            reading = _Reading(tasks, columns, schema, per_task_row_limit, block_bytes)
            # One schema says that of all.
            told = None if made else schema
            made.append(ReadTask(reading, _metadata(tasks), told, per_task_row_limit))
        return made


class _Reading:
    """Reads some tasks. It runs on a worker."""

    __name__ = "penstock"  # which Ray uses in warnings

    def __init__(
        self,
        tasks: Sequence[OwnTask],
        columns: list[str] | None,
        schema: pa.Schema,
        limit: int | None,
        block_bytes: int,
    ) -> None:
        self._tasks = tasks
        self._columns = columns
        self._schema = schema
        self._limit = limit
        self._block_bytes = block_bytes

    def __reduce__(self) -> Any:
        return unpickled, (pickle.dumps((_Reading, self.__dict__)),)

    def __call__(self) -> Iterator[pa.Table]:
        """Yield the records as blocks."""
        waiting: list[pa.RecordBatch] = []
        num_bytes = num_records = 0
        for task in self._tasks:
            for batch in task.batches(self._columns):
                waiting.append(batch)
                num_bytes += batch.nbytes
                num_records += batch.num_rows
                is_enough = self._limit is not None and num_records >= self._limit
                if num_bytes >= self._block_bytes or is_enough:
                    yield ray_table(waiting, self._schema)
                    waiting, num_bytes = [], 0
                if is_enough:
                    return
        if waiting:
            yield ray_table(waiting, self._schema)


def _metadata(tasks: Sequence[OwnTask]) -> BlockMetadata:
    counts = [task.num_records for task in tasks if task.num_records is not None]
    return BlockMetadata(
        num_rows=sum(counts) if len(counts) == len(tasks) else None,
        size_bytes=sum(task.num_bytes for task in tasks),
        exec_stats=None,
        input_files=None,
    )


def unpickled(data: bytes) -> Any:
    """The object of a class and its attributes. Ray's own pickles of schemas would lose penstock's types."""
    kind, attributes = pickle.loads(data)  # noqa: S301  Ray does the same with all tasks
    made = kind.__new__(kind)
    made.__dict__.update(attributes)
    return made


def _groups(tasks: list[OwnTask], count: int) -> Iterator[list[OwnTask]]:
    """Divide tasks into at most so many groups of neighbours, of about the same bytes. Parts of a file that end up in one
    group are one task."""
    ends = list(accumulate(task.num_bytes for task in tasks))
    total = ends[-1] if ends else 0
    group: list[OwnTask] = []
    number = 0
    for task, end in zip(tasks, ends, strict=True):
        both = group[-1].and_next(task) if group else None
        group[-1:] = [*group[-1:], task] if both is None else [both]
        if end * count >= total * (number + 1):
            yield group
            group = []
            number = max(number + 1, end * count // total if total else 0)
    if group:
        yield group


def _has_plain_columns(expression: Any, schema: pa.Schema) -> bool:
    """Whether the columns of an expression have the same types here as in blocks of Ray."""
    blocks = ray_schema(schema)
    names = columns_of_expression(expression, schema.names)
    return all(schema.field(name).type == blocks.field(name).type for name in names)
