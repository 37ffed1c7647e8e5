"""The tasks of a dataset are its records, in every format, here and in an object store."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from held import WRITABLE, table_of
from test_laws import written

import penstock as ps
from penstock.contract.format import Format
from places import Place

per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)
MOST_BYTES = 4000


def carried(tasks: list[ps.ReadTask]) -> list[ps.ReadTask]:
    """The tasks as another process gets them."""
    sent = [pickle.dumps(task) for task in tasks]
    assert max(map(len, sent)) < MOST_BYTES
    return [pickle.loads(one) for one in sent]


def check(ds: ps.Dataset, targets: tuple[int, ...], **how: Any) -> None:
    wanted = pa.Table.from_batches(ds.scan(threads=1, **how))
    for target in targets:
        tasks = carried(ds.tasks(target))
        found = [list(task.batches(**how)) for task in tasks]
        assert [task.num_records for task in tasks] == [sum(map(len, each)) for each in found]
        got = pa.Table.from_batches([batch for each in found for batch in each])
        # Batches of a scan may differ in the dictionaries of class labels.
        assert got.schema.equals(wanted.schema)
        assert got.equals(wanted) or got.to_pylist() == wanted.to_pylist()


@per_format
def test_tasks_are_the_records_of_a_scan(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    long = written(fmt, place, table, "long")
    short = [written(fmt, place, table.slice(at, 9), f"short{at}") for at in (0, 9)]
    ds = ps.open([short[0], long, short[1]], format=fmt.info.name)
    check(ds, (1, 100_000, 3 << 20, 1 << 30))
    check(ds, (1,), columns=ds.schema.names[:1])
    assert len(ds.tasks(1 << 40)) == 1
    many = ds.tasks(1)
    assert [task.num_records for task in (many[0], many[-1])] == [9, 9]
    assert all(task.num_bytes > 0 for task in many)


@per_format
def test_tasks_of_raw_records(fmt: Format, place: Place) -> None:
    if not fmt.info.has_raw_records:
        return
    path = written(fmt, place, table_of(fmt))
    check(ps.open(path, raw=True, format=fmt.info.name), (1,))


@per_format
def test_a_task_of_a_changed_file_is_refused(fmt: Format, place: Place) -> None:
    table = table_of(fmt)
    path = written(fmt, place, table.slice(0, 10))
    (task,) = carried(ps.open(path, format=fmt.info.name).tasks())
    written(fmt, place, table.slice(10, 9))
    with pytest.raises(ps.ChangedError):
        list(task.batches())
