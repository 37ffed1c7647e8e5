"""`stats` summarises the values of each field in one pass over the records, in bounded memory.

Batches are read in parallel, and their figures are merged in file order, so the result does not depend on the number
of threads. Counts, ranges, lengths and histograms are exact. Distinct values are counted up to `DISTINCT_LIMIT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.columns.inferred import InferredFrom, files
from penstock.conditions import Where
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.engine.pipeline import in_order
from penstock.verbs.inspect.observe import FieldObserver, ImageSizes, Observation
from penstock.verbs.inspect.tally import Histogram, Spread
from penstock.verbs.progress import Progress, meter_of


@dataclass(frozen=True, slots=True)
class FieldStats:
    """The summary of one field. The children of a struct follow it as `parent.child`.

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


@dataclass(frozen=True, slots=True)
class Stats:
    """The summary of a dataset. `fields_from` names the records from which the fields were inferred, or is None if no
    other record can have further fields."""

    num_records: int
    fields: tuple[FieldStats, ...]
    fields_from: str | None = None

    def __getitem__(self, name: str) -> FieldStats:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)


def stats(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
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

    Returns:
        The number of records, and for each field its nulls, lengths, ranges, distinct values, histogram and image
        sizes.

    Raises:
        PenstockError: damaged data, unless the Dataset was opened to skip it.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"label": [3, 1, 2, 3]}, "labels.tfrecord", overwrite=True)
        >>> found = ps.stats("labels.tfrecord")["label"]
        >>> found.values.min, found.values.mean, found.values.max, found.num_distinct
        (1, 2.25, 3, 3)
    """
    ds = source if isinstance(source, Dataset) else open_dataset(source)
    schema = ds.schema if columns is None else pa.schema([ds.schema.field(c) for c in columns])
    observers = [FieldObserver(field.name, field.type) for field in schema]
    num_records = 0
    meter = meter_of(progress, ds)
    chosen = ds if where is None else ds.filter(where)
    stream = partial(chosen.scan, columns, None, threads)
    for rows, parts in in_order([stream], partial(_look, observers), lambda part: 0, threads):
        for observer, part in zip(observers, parts, strict=True):
            observer.add(part)
        num_records += rows
        meter.add(rows)
    fields_from = _fields_from(ds) if columns is None else None
    return Stats(num_records, tuple(_finished(observers)), fields_from)


def _fields_from(ds: Dataset) -> str | None:
    """Return the name of the records from which the fields were inferred, or None if these were all records."""
    seen = InferredFrom.of(ds.schema)
    if seen is None or ds.columns is not None:
        return None
    everywhere = ds.options.format_options.get("infer_records") == "all"
    of_all = len(ds.paths) == 1 or seen.place == files(len(ds.paths))
    return None if everywhere or (seen.is_all and of_all) else str(seen)


def _look(
    observers: Sequence[FieldObserver], batch: pa.RecordBatch
) -> Iterator[tuple[int, list[Observation]]]:
    parts = [observer.look(batch.column(n)) for n, observer in enumerate(observers)]
    yield batch.num_rows, parts


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
