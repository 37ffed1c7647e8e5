"""`stats` summarises the values of each field in one pass over the records, in bounded memory.

Batches are read in parallel, and their figures are merged in file order, so the result does not depend on the number
of threads. Counts, ranges, lengths and histograms are exact. Distinct values are counted up to `DISTINCT_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from penstock import describe
from penstock.columns.inferred import InferredFrom, files
from penstock.conditions import Where
from penstock.contract.format import SkippedRegion
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.datasets.tasks import ReadTask
from penstock.engine.pipeline import checked_threads, in_order
from penstock.printing import tables
from penstock.printing.printed import Printed
from penstock.verbs.inspect.observe import FieldObserver, ImageSizes, Observation
from penstock.verbs.inspect.tally import Histogram, Spread
from penstock.verbs.machines import TASK_BYTES, each_done, run_on
from penstock.verbs.progress import Progress, meter_of


@dataclass(frozen=True, slots=True, repr=False)
class FieldStats(Printed):
    """The summary of one field. Printed, it is a table. The children of a struct follow it as `parent.child`.

    `num_null` of `num_entries` values are null (for a child: of its parents' entries). For lists, `lengths` has the
    numbers of values without nulls; all other figures are about the innermost values. `values` is the range of numbers,
    except NaN and infinities, which are counted separately. `sizes` is in bytes. If values are not counted (floats,
    long bytes), `most_common` is empty and `num_distinct` None. `has_more_distinct` is true if counting stopped at
    `num_distinct`.
    """

    name: str
    type: pa.DataType
    num_entries: int
    num_null: int
    lengths: Spread | None = None
    sizes: Spread | None = None
    values: Spread | None = None
    num_nan: int = 0
    num_infinite: int = 0
    is_text: bool = False
    num_distinct: int | None = None
    has_more_distinct: bool = False
    most_common: tuple[tuple[Any, int], ...] = ()
    histogram: Histogram | None = None
    images: tuple[ImageSizes, ...] = ()

    def _page(self) -> list[Any]:
        """The table that `print` shows."""
        return [_table([self])]

    def _summary(self) -> str:
        kind = describe.escape(f"{self.name} ({describe.kind(self.type)})")
        return f"{kind}, {describe.count(self.num_entries)} values, {describe.count(self.num_null)} null"


@dataclass(frozen=True, slots=True, repr=False)
class Stats(Printed):
    """The summary of a dataset. Printed, it is a table. `fields_from` names the records from which the fields were inferred, or is None if no
    other record can have further fields."""

    num_records: int
    fields: tuple[FieldStats, ...]
    fields_from: str | None = None

    def __getitem__(self, name: str) -> FieldStats:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def _page(self) -> list[Any]:
        """The table that `print` and `penstock stats` show."""
        parts: list[Any] = [describe.records(self.num_records), "", _table(self.fields)]
        if self.fields_from is not None:
            note = (
                f'the fields of {self.fields_from}; --infer all, or infer_records="all" of open, adds fields'
                " that only other records have"
            )
            parts += ["", tables.dim(describe.escape(note))]
        return parts

    def _summary(self) -> str:
        names = ", ".join(describe.escape(field.name) for field in self.fields)
        return f"{describe.records(self.num_records)}, {names}"


def stats(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Stats:
    """Read every record once, and summarise each field.

    Args:
        source: a Dataset, or anything that `penstock.open` takes.
        columns: the fields to read; None for all fields of the Dataset. Other fields are not decoded. To include
            fields that only later records have, open the Dataset with `infer_records="all"`.
        where: only the records for which this condition is true, as for `Dataset.filter`.
        threads: the number of threads; None for all cores.
        progress: called with the records done, the bytes done (estimated from the records) and the total bytes. With
            `progress`, the records are counted first.
        on: where the records are read: None for this process, "ray", "ray://host:port" or a `penstock.ray.Cluster` for
            the machines of a cluster. A task reads one file, or several small ones, with `threads` threads; None for the
            cores of the task.
        storage, storage_options: as for `open`.
        options: options of `penstock.open`, such as `damage="skip"` or an option of the format, if source is not a
            Dataset.

    Returns:
        The number of records, and for each field its nulls, lengths, ranges, distinct values, histogram and image
        sizes.

    Raises:
        PenstockError: damaged data, unless the Dataset was opened to skip it.
        TypeError: options for a Dataset, which is already open.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"label": [3, 1, 2, 3]}, "labels.tfrecord", overwrite=True)
        >>> found = ps.stats("labels.tfrecord")["label"]
        >>> found.values.min, found.values.mean, found.values.max, found.num_distinct
        (1, 2.25, 3, 3)
    """
    if options and isinstance(source, Dataset):
        raise TypeError(
            f"give {next(iter(options))}= to penstock.open: the dataset is already open"
        )
    ds = opened(source, storage, storage_options, **options)
    schema = ds.schema if columns is None else ds.select(list(columns)).schema
    observers = [FieldObserver(field.name, field.type) for field in schema]
    meter = meter_of(progress, ds)
    chosen = ds if where is None else ds.filter(where)
    num_records = 0

    def add(seen: _Seen) -> None:
        nonlocal num_records
        for observer, part in zip(observers, seen.parts, strict=True):
            observer.add(part)
        num_records += seen.num_records
        meter.add(seen.num_records)

    if on is None:
        stream = partial(chosen.scan, columns, None, threads)
        for seen in in_order([stream], partial(_look, observers), lambda seen: 0, threads):
            add(seen)
    else:
        _look_on(on, chosen, observers, columns, threads, add)
    fields_from = _fields_from(ds) if columns is None else None
    return Stats(num_records, tuple(_finished(observers)), fields_from)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The figures of some records: a summary for each field."""

    num_records: int
    parts: list[Observation]
    damage: list[SkippedRegion]


def _look_on(
    on: Any,
    ds: Dataset,
    observers: list[FieldObserver],
    columns: Sequence[str] | None,
    threads: int | None,
    add: Callable[[_Seen], None],
) -> None:
    """Read the records on a cluster. The figures do not depend on the order in which they are added."""
    tasks = ds.whole_tasks(TASK_BYTES)
    look = partial(_look_at_task, observers, columns, threads)
    names = [ds.paths[task.file_numbers[0]] for task in tasks]

    def done(_: int, seen: _Seen) -> None:
        add(seen)
        for region in seen.damage:
            ds.add_skipped(region)

    each_done(run_on(on, look, tasks, (ds.files.storage, ds.files.read_paths)), names, done)


def _look_at_task(
    observers: Sequence[FieldObserver],
    columns: Sequence[str] | None,
    threads: int | None,
    task: ReadTask,
) -> _Seen:
    num_records, threads = 0, checked_threads(threads)
    stream = partial(task.batches, columns, threads)
    own = [observer.anew() for observer in observers]
    for seen in in_order([stream], partial(_look, own), lambda seen: 0, threads):
        num_records += seen.num_records
        for observer, part in zip(own, seen.parts, strict=True):
            observer.add(part)
    return _Seen(num_records, [observer.seen for observer in own], task.damage)


def _fields_from(ds: Dataset) -> str | None:
    """Return the name of the records from which the fields were inferred, or None if these were all records."""
    seen = InferredFrom.of(ds.schema)
    if seen is None or ds.columns is not None:
        return None
    everywhere = ds.options.format_options.get("infer_records") == "all"
    of_all = len(ds.paths) == 1 or seen.place == files(len(ds.paths))
    return None if everywhere or (seen.is_all and of_all) else str(seen)


def _look(observers: Sequence[FieldObserver], batch: pa.RecordBatch) -> Iterator[_Seen]:
    parts = [observer.look(batch.column(n)) for n, observer in enumerate(observers)]
    yield _Seen(batch.num_rows, parts, [])


def _finished(observers: Sequence[FieldObserver]) -> Iterator[FieldStats]:
    for observer in observers:
        for name, type_, seen in observer.results():
            counts = seen.distinct
            yield FieldStats(
                name,
                type_,
                seen.num_entries,
                seen.num_null,
                lengths=seen.lengths.spread(),
                sizes=seen.sizes.spread(),
                values=seen.values.spread(type_),
                num_nan=seen.num_nan,
                num_infinite=seen.num_infinite,
                is_text=seen.is_text(type_),
                num_distinct=counts.number,
                has_more_distinct=counts.is_over,
                most_common=counts.most_common(),
                histogram=seen.histogram(),
                images=seen.image_sizes(),
            )


# -- as a table -----------------------------------------------------------------------------------


def _table(fields: Sequence[FieldStats]) -> Table:
    shown = tables.table("field", "present", "values", right=("present",))
    for place, field in enumerate(fields):
        left = Text(describe.escape(field.name), style="bold")
        left.append(f"\n{describe.escape(describe.kind(field.type))}", style="dim not bold")
        right = Text("\n").join(_lines(field))
        shown.add_row(left, _present(field), right, end_section=True)
        if place < len(fields) - 1:
            shown.add_row("", "", "")
    return shown


def _present(field: FieldStats) -> Text:
    if not field.num_null:
        return Text("all" if field.num_entries else "none")
    share = 100 * (field.num_entries - field.num_null) / field.num_entries
    shown = Text(f"{share:.3g} %" if field.num_null < field.num_entries else "none")
    return shown.append(f"\n{describe.count(field.num_null)} null", style="yellow")


def _lines(field: FieldStats) -> list[Text]:
    lines: list[str] = []
    if field.lengths is not None:
        lines.append("length " + field.lengths.text(_figure))
    for image in field.images:
        sides = f"{_side(image.width)} x {_side(image.height)} pixels"
        lines.append(f"{describe.count(image.width.count)} {image.kind} images, {sides}")
    if field.sizes is not None:
        word = "text of " if field.is_text else ""
        lines.append(word + field.sizes.text(describe.size))
    if field.values is not None:
        lines.append(_range(field))
    odd = {"NaN": field.num_nan, "infinite": field.num_infinite}
    lines += [f"{describe.count(number)} {word}" for word, number in odd.items() if number]
    if field.num_distinct is not None:
        lines.append(_distinct(field))
    shown = [Text(line) for line in lines]
    if field.histogram is not None:
        shown.append(_histogram(field.histogram))
    return shown or [tables.dim("no values")]


def _histogram(histogram: Histogram) -> Text:
    line = Text(describe.bars(histogram.counts), style="cyan")
    if histogram.of != "values":
        line.append(f"  of {histogram.of}", style="dim")
    return line


def _range(field: FieldStats) -> str:
    assert field.values is not None
    spread = field.values
    if spread.mean is None:
        return f"{spread.min} … {spread.max}" if spread.min != spread.max else f"{spread.min}"
    return spread.text(_figure)


def _figure(value: Any) -> str:
    """Return a number as text: integers and decimals in full, other numbers to four digits."""
    if isinstance(value, Decimal):
        return f"{value:,f}"
    if isinstance(value, float) and (not value.is_integer() or abs(value) >= 1e15):
        return f"{value:,.1f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    return describe.count(int(value)) if not isinstance(value, bool) else str(value).lower()


def _side(spread: Spread) -> str:
    return str(spread.min) if spread.min == spread.max else f"{spread.min}–{spread.max}"


def _distinct(field: FieldStats) -> str:
    number = field.num_distinct or 0
    if field.has_more_distinct:
        return f"more than {describe.count(number)} distinct"
    shown = f"{describe.count(number)} distinct"
    if not field.most_common or field.most_common[0][1] == 1:
        return shown
    total = field.values.count if field.values is not None else 0
    total = total or (field.sizes.count if field.sizes is not None else 0)
    common = [
        f"{describe.value(_scalar(value), 16)} ({100 * count / total:.3g} %)"
        for value, count in field.most_common[:3]
    ]
    return f"{shown}: {', '.join(common)}"


def _scalar(value: Any) -> pa.Scalar:
    """Return a value as an Arrow scalar. By default pyarrow makes every integer an int64."""
    is_large = isinstance(value, int) and value >= 1 << 63
    return pa.scalar(value, pa.uint64()) if is_large else pa.scalar(value)
