"""`Dataset.tasks`: a plan of read tasks, which other processes and machines can run.

1. A task is several neighbouring shards, or a part of one that is larger than `target_bytes`.
2. A shard is cut between spans (`Reader.spans`). A part has the numbers of its records and its bytes, so that a worker
   finds them without an index (`Reader.found_in`). If damage is skipped or ends a file, no shard is cut.
3. A plan keeps what all tasks have in common (`Known`) once, and looks up the names and states of shards when a task needs
   them. So a million shards of a manifest are planned from its table, and none is opened.
4. The pickle of a task has what it needs alone. A task that was not pickled is read in the same way.
5. A task is read by a scan of `TaskFiles`: the same readers as those of the dataset, with the schema settled and the
   states pinned. Views are put on top again. Of records chosen by number, a task has those of its range.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.conditions import Where
from penstock.contract.format import Chunk, SkippedRegion
from penstock.datasets._chosen import ByCondition, ByNumber, Choice
from penstock.datasets._hive import HiveColumns
from penstock.datasets._opened import Opened, options_of
from penstock.datasets._portable import packed, unpacked
from penstock.datasets._task_files import (
    Columns,
    Known,
    TaskFiles,
    TaskShard,
    from_columns,
    to_columns,
)
from penstock.datasets._unlisted import joined
from penstock.datasets._views import View, ViewFiles
from penstock.datasets.files import Files
from penstock.datasets.scan import scan
from penstock.errors import UnsupportedError, shown
from penstock.limits import checked_count
from penstock.storage.local import LocalStorage

Chosen = Callable[[int], np.ndarray]
"""The numbers of the chosen records of a shard, ascending."""


class Plan:
    """What the tasks of a dataset have in common, and how a task finds its shards."""

    def __init__(
        self,
        known: Known,
        shards: Callable[[range], list[TaskShard]],
        views: Sequence[View],
        schema: pa.Schema,
        columns: Sequence[str] | None,
        hive: HiveColumns | None,
    ) -> None:
        self.known = known
        self.shards = shards
        self.views = views
        self.schema = schema
        self.columns = columns
        self.hive = hive


class ReadTask:
    """Some records of a dataset: a contiguous range of them, which can be read in another process or on another machine.
    `Dataset.tasks` makes it.

    It pickles with all that it needs, which is little. Credentials are not in it: the machine that reads uses its own.
    The files must be in the state in which they were planned.

    Example:
        >>> import os
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> task = ps.open("numbers.tfrecord").tasks()[0]
        >>> task.num_records, task.paths == [os.path.abspath("numbers.tfrecord")]
        (3, True)
        >>> [batch.to_pydict() for batch in task.batches()]
        [{'id': [1, 2, 3]}]
    """

    __slots__ = ("_files", "_numbers", "_opened", "_part", "_plan", "num_bytes", "num_records")

    num_records: int | None
    """The number of its records. None if that is unknown before they are read: if damage is skipped or ends a file
    (`damage=`), or with a condition (`filter`)."""
    num_bytes: int
    """The bytes of its files, or of its part of one."""

    def __init__(
        self,
        plan: Plan,
        files: range,
        part: Chunk[None] | None,
        num_records: int | None,
        num_bytes: int,
        numbers: Sequence[np.ndarray] | None = None,
    ) -> None:
        self._plan, self._files, self._part = plan, files, part
        self._numbers = numbers
        """Of records chosen by number: the numbers in each file, or in the part."""
        self.num_records, self.num_bytes = num_records, num_bytes
        self._opened: Opened | None = None

    @property
    def schema(self) -> pa.Schema:
        """The fields of a record, as a pyarrow.Schema: those of the dataset."""
        return self._plan.schema

    @property
    def paths(self) -> list[str]:
        """Its files, in the order in which they are read. Those of this machine are absolute."""
        return [shard.path for shard in self._plan.shards(self._files)]

    @property
    def damage(self) -> list[SkippedRegion]:
        """The regions skipped so far, if damage is skipped; see `Dataset.damage`."""
        return [] if self._opened is None else self._opened.damage

    def batches(
        self,
        columns: Sequence[str] | None = None,
        threads: int | None = 1,
        batch_records: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records as Arrow batches, as `Dataset.scan` does, with the same columns, types and order.

        Args:
            columns: names of columns; None for all. Other columns are not decoded.
            threads: how many chunks are decoded in parallel; None for one on each core. One, because a cluster usually
                gives a task one core.
            batch_records: the records in each batch except the last. None makes one batch of each chunk.

        Raises:
            ChangedError: a file is not in the state in which it was planned, or is missing.
            PenstockError: data is damaged, or records do not fit the schema.
        """
        if threads is not None:
            threads = checked_count("threads", threads, 1)
        if batch_records is not None:
            batch_records = checked_count("batch_records", batch_records, 1)
        opened = self._open()
        return scan(opened, opened.projection(columns), batch_records, threads)

    @property
    def file_numbers(self) -> range:
        """The numbers of its files in the dataset; from 0 if it was pickled."""
        return self._files

    def files(self) -> Files:
        """Its files, which are read and counted as those of the dataset, with their indexes."""
        files = self._open().files
        files.options = options_of(self._plan.known.call)
        return files

    def filter(self, where: Where) -> ReadTask:
        """The task for those of these records for which a condition holds, as `Dataset.filter`."""
        plan = self._plan
        views = [*plan.views, ByCondition(where, plan.schema)]
        chosen = Plan(plan.known, plan.shards, views, plan.schema, plan.columns, plan.hive)
        return ReadTask(chosen, self._files, self._part, None, self.num_bytes, self._numbers)

    def and_next(self, other: ReadTask) -> ReadTask | None:
        """One task for the records of this task and of the next one of the same plan. None unless both are parts of the
        same file."""
        mine, its = self._part, other._part
        if mine is None or its is None or not _are_next(mine, its) or self._numbers is not None:
            return None
        if self.paths != other.paths:
            return None
        counts = self.num_records, other.num_records
        part = Chunk(
            mine.first_record,
            mine.num_records + its.num_records,
            mine.start_byte,
            its.end_byte,
            None,
        )
        num_records = None if None in counts else sum(filter(None, counts))
        num_bytes = self.num_bytes + other.num_bytes
        return ReadTask(self._plan, self._files, part, num_records, num_bytes)

    def _open(self) -> Opened:
        if self._opened is None:
            plan = self._plan
            shards = plan.shards(self._files)
            hive = None if plan.hive is None else plan.hive.some(self._files)
            files: Files = TaskFiles(plan.known, shards, self._part, hive)
            if self._numbers is not None:
                files = ByNumber(self._numbers).files(files)
            for view in plan.views:
                files = view.files(files)
            self._opened = Opened(files, plan.columns)
        return self._opened

    def __reduce__(self) -> tuple[Any, ...]:
        plan = self._plan
        shards = plan.shards(self._files)
        storage = plan.known.call["storage"] or LocalStorage()
        storage.check_pickled_names([shard.path for shard in shards])
        hive = None if plan.hive is None else plan.hive.some(self._files)
        of_plan = plan.known, plan.views, plan.schema, plan.columns
        numbers = None if self._numbers is None else list(map(packed, self._numbers))
        own = self._part, self.num_records, self.num_bytes, numbers
        return _task_alone, (of_plan, to_columns(shards), hive, own)

    def __repr__(self) -> str:
        files, part = self._files, self._part
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        where = "" if part is None else f" from record {part.first_record}"
        count = "records" if self.num_records is None else f"{self.num_records} records"
        name = os.path.basename(shown(self._plan.shards(files[:1])[0].path))
        return f"<penstock.ReadTask {name}{more}{where}: {count}>"


def _task_alone(
    of_plan: tuple[Any, ...],
    columns_of_shards: Columns,
    hive: HiveColumns | None,
    own: tuple[Any, ...],
) -> ReadTask:
    """A task that was pickled."""
    known, views, schema, columns = of_plan
    shards = from_columns(columns_of_shards)
    plan = Plan(known, lambda _: shards, views, schema, columns, hive)
    part, num_records, num_bytes, chosen = own
    numbers = None if chosen is None else list(map(unpacked, chosen))
    return ReadTask(plan, range(len(shards)), part, num_records, num_bytes, numbers)


def tasks_of(
    dataset: Opened, call: dict[str, Any], target_bytes: int, *, are_whole: bool = False
) -> list[ReadTask]:
    """See Dataset.tasks. With `are_whole`, no file is cut, so none has to be counted, and files of this machine keep the
    names that the caller gave them."""
    files, views, chosen = _taken_apart(dataset.files)
    plan = _plan(dataset, call, files, views, are_named=are_whole, are_counted=not are_whole)
    is_counted = not any(isinstance(view, ByCondition) for view in views)
    tasks: list[ReadTask] = []
    for ranges, part, count, num_bytes in _ranges(files, target_bytes, are_whole=are_whole):
        numbers = None if chosen is None else _within(chosen, ranges, part)
        if numbers is not None:
            if not any(map(len, numbers)):
                continue
            count = None if count is None else sum(map(len, numbers))
        count = count if is_counted else None
        tasks.append(ReadTask(plan, ranges, part, count, num_bytes, numbers))
    return tasks


def tasks_at(
    dataset: Opened, call: dict[str, Any], several: Iterable[range | np.ndarray]
) -> Iterator[list[ReadTask]]:
    """For each of several sequences of ascending numbers, yield tasks that together read the records with these numbers,
    and no others. A task has records of one file, which has the name that the caller gave it."""
    files = dataset.files
    base, views, _ = _taken_apart(files)
    views = [view for view in views if not isinstance(view, Choice)]
    plan = _plan(dataset, call, base, views, are_named=True, are_counted=True)
    spans = _Spans(base)
    for numbers in several:
        tasks: list[ReadTask] = []
        for shard, wanted in _by_shard(files, numbers):
            size, total = base.num_bytes(shard), base.num_records_of(shard)
            only = range(shard, shard + 1)
            if len(wanted) == total:
                tasks.append(ReadTask(plan, only, None, total, size))
                continue
            for part, num_bytes, inside in _pieces(spans.of(shard, wanted), size, wanted):
                count = part.num_records if inside is None else len(inside)
                chosen = None if inside is None else [inside]
                tasks.append(ReadTask(plan, only, part, count, num_bytes, chosen))
        yield tasks


class _Spans:
    """Keeps the spans of one file, since consecutive requests are for the same."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._shard = -1
        self._spans: list[Chunk[Any]] = []
        self._firsts = np.zeros(0, np.int64)

    def of(self, shard: int, wanted: np.ndarray) -> list[Chunk[Any]]:
        """The spans of a file from the first to the last of some records."""
        if shard != self._shard:
            self._shard, self._spans = shard, list(self._files.reader(shard).spans())
            self._firsts = np.array([span.first_record for span in self._spans])
        begin, end = np.searchsorted(self._firsts, wanted[[0, -1]], "right").tolist()
        return self._spans[begin - 1 : end]


def _by_shard(files: Files, numbers: range | np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """The shards of some records, with the numbers of these records in their files."""
    if not len(numbers):
        return
    firsts = files.firsts
    begin, end = np.searchsorted(firsts, [numbers[0], numbers[-1]], "right").tolist()
    for shard in range(begin - 1, end):
        low, high = firsts[shard : shard + 2].tolist()
        if isinstance(numbers, range):
            inside = np.arange(max(numbers[0], low), min(numbers[-1] + 1, high))
        else:
            inside = numbers[slice(*np.searchsorted(numbers, [low, high]).tolist())]
        if len(inside):
            yield shard, files.in_file(shard, inside - low)


def _pieces(
    spans: Sequence[Chunk[Any]], size: int, wanted: np.ndarray
) -> Iterator[tuple[Chunk[None], int, np.ndarray | None]]:
    """Divide records of a file of `size` bytes into parts that are read whole (None), and parts of which some records are
    read: their numbers in the part."""
    runs: list[tuple[bool, list[Chunk[Any]]]] = []
    for span in spans:
        count = _between(wanted, span.first_record, span.num_records)
        is_whole = len(count) == span.num_records
        if not len(count):
            continue
        if runs and runs[-1][0] == is_whole and _are_next(runs[-1][1][-1], span):
            runs[-1][1].append(span)
        else:
            runs.append((is_whole, [span]))
    for is_whole, run in runs:
        ((part, num_bytes),) = joined(run, size, size + 1)
        inside = _between(wanted, part.first_record, part.num_records) - part.first_record
        yield part, num_bytes, None if is_whole else inside


def _between(numbers: np.ndarray, first: int, count: int) -> np.ndarray:
    return numbers[slice(*np.searchsorted(numbers, [first, first + count]).tolist())]


def _are_next(before: Chunk[Any], after: Chunk[Any]) -> bool:
    return before.first_record + before.num_records == after.first_record


def tasks_of_files(dataset: Opened, call: dict[str, Any], numbers: Sequence[int]) -> list[ReadTask]:
    """A task for each of these files of a dataset that is not a view; see `Dataset.whole_tasks`."""
    plan = _plan(dataset, call, dataset.files, (), are_named=True, are_counted=False)
    return [ReadTask(plan, range(number, number + 1), None, None, 0) for number in numbers]


def _plan(
    dataset: Opened,
    call: dict[str, Any],
    files: Files,
    views: Sequence[View],
    *,
    are_named: bool,
    are_counted: bool,
) -> Plan:
    known, hive = TaskFiles.known_of(files, call), TaskFiles.hive_of(files)
    shards = partial(TaskFiles.shards_of, files, are_named=are_named, are_counted=are_counted)
    return Plan(known, shards, views, dataset.schema, dataset.columns, hive)


_Range = tuple[range, Chunk[None] | None, int | None, int]
"""The shards of a task, its part of one, its records, and its bytes."""


def _ranges(files: Files, target_bytes: int, *, are_whole: bool) -> Iterator[_Range]:
    begin = num_bytes = num_records = shard = 0
    known = files.counts_records and not are_whole
    for shard, (size, count, cuts) in enumerate(files.divided(target_bytes, are_counted=known)):
        is_cut = len(cuts) > 1
        if begin < shard and (is_cut or num_bytes + size > target_bytes):
            yield range(begin, shard), None, num_records if known else None, num_bytes
            begin, num_bytes, num_records = shard, 0, 0
        if is_cut:
            for part, part_bytes in cuts:
                yield range(shard, shard + 1), part, part.num_records, part_bytes
            begin = shard + 1
        else:
            num_bytes += size
            num_records += count or 0
    if begin <= shard:
        yield range(begin, shard + 1), None, num_records if known else None, num_bytes


def _taken_apart(files: Files) -> tuple[Files, list[View], Chosen | None]:
    """The files without views, the views from the inside out, and the records of the files that are chosen by number:
    those of the outermost such view, which are all chosen by the views below it, too."""
    views: list[View] = []
    chosen: Chosen | None = None
    while isinstance(files, ViewFiles):
        view: View = files.view
        if not view.keeps_records:
            raise UnsupportedError(
                "rows that are made of several documents cannot be divided into tasks",
                hint="make tasks of the documents and pack those of each task; or penstock.write the rows, and make tasks"
                " of the new files",
            )
        if not isinstance(view, Choice):
            views.append(view)
        elif chosen is None and isinstance(view, ByNumber):
            chosen = partial(_in_file, files.base, view.numbers(files.base))
        elif chosen is None:
            views.append(view)
        files = files.base
    return files, views[::-1], chosen


def _in_file(files: Files, numbers: Sequence[np.ndarray], shard: int) -> np.ndarray:
    return files.in_file(shard, numbers[shard])


def _within(chosen: Chosen, shards: range, part: Chunk[None] | None) -> list[np.ndarray]:
    """The chosen records of some shards, or of a part of one, which counts them from 0."""
    if part is None:
        return list(map(chosen, shards))
    numbers, first = chosen(shards[0]), part.first_record
    begin, end = np.searchsorted(numbers, [first, first + part.num_records]).tolist()
    return [numbers[begin:end] - first]
