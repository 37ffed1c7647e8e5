"""Tests of the laws that every format obeys, for a format of your own.

A package that adds a format by the entry point group `penstock.formats` has one test file:

    from penstock.testing import FormatLaws

    class TestToy(FormatLaws):
        format = "toy"

pytest finds the tests of the class. If the format cannot hold columns of every kind, override `table`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import formats

_FLIPS = 200
"""Damaged copies of a small file that the laws read."""


class FormatLaws:
    """Tests of one format. Each method is a law; pytest passes it an empty folder."""

    format: ClassVar[str]
    """The name of the format."""
    num_records: ClassVar[int] = 1000

    def table(self, num_records: int) -> pa.Table:
        """Return records that the format holds as they are, the same each time. Override it for a format that does not
        hold numbers, bytes and lists."""
        rng = np.random.default_rng(0)
        return pa.table(
            {
                "id": pa.array(np.arange(num_records)),
                "score": pa.array(rng.standard_normal(num_records).astype(np.float32)),
                "text": pa.array(
                    [rng.bytes(n % 90) + b"." for n in range(num_records)], pa.binary()
                ),
                "tokens": pa.array(
                    [list(range(n % 4 + 2)) for n in range(num_records)], pa.list_(pa.int64())
                ),
            }
        )

    # -- helpers --------------------------------------------------------------------------------

    def write(self, folder: Path, table: pa.Table, name: str = "a") -> str:
        """Write a shard, and return its path."""
        ending = formats.by_name(self.format).info.extensions[0]
        made = ps.write(
            table, folder / f"{name}{ending}", format=self.format, index=False, overwrite=True
        )
        return made.paths[0]

    def open(self, path: Any, folder: Path, **options: Any) -> ps.Dataset:
        """Open shards, with their indexes in a folder of their own."""
        return ps.open(path, format=self.format, index=str(folder / "indexes"), **options)

    # -- laws -----------------------------------------------------------------------------------

    def test_written_records_read_back(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        ds = self.open(self.write(tmp_path, table), tmp_path)
        _check_same(ds.to_table(), table)
        assert len(ds) == table.num_rows, "len(ds) is the number of records"
        assert ps.verify(ds.paths[0]).ok, "verify finds nothing in a file that was just written"

    def test_a_file_without_records(self, tmp_path: Path) -> None:
        ds = self.open(self.write(tmp_path, self.table(3).slice(0, 0)), tmp_path)
        assert len(ds) == 0
        assert ds.to_table().num_rows == 0

    def test_the_format_is_detected(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, self.table(10))
        assert ps.open(path, index="never").shards[0].format == self.format

    def test_take_returns_what_scan_does(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        ds = self.open(self.write(tmp_path, table), tmp_path)
        rng = np.random.default_rng(1)
        for numbers in ([0], [-1, 0, 5, 5], rng.integers(0, table.num_rows, 300).tolist(), []):
            places = pa.array([number % table.num_rows for number in numbers], pa.int64())
            wanted = table.take(places)
            _check_same(pa.table(ds.take(numbers)), wanted)
        _check_raises(lambda: ds[table.num_rows], ps.RecordIndexError)

    def test_columns_are_those_asked_for(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        ds = self.open(self.write(tmp_path, table), tmp_path)
        for names in (table.schema.names[-1:], table.schema.names[::-1]):
            _check_same(ds.to_table(names), table.select(names))
            _check_same(pa.table(ds.take([3, 1], names)), table.select(names).take([3, 1]))
        _check_raises(lambda: ds.to_table(["no such column"]), ps.SchemaError)

    def test_threads_and_batches_change_nothing(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        cut = table.num_rows // 3
        parts = [table.slice(0, cut), table.slice(cut, cut), table.slice(2 * cut)]
        paths = [self.write(tmp_path, part, f"part{n}") for n, part in enumerate(parts)]
        ds = self.open(paths, tmp_path)
        for threads in (1, 3):
            for size in (None, 7, 10_000):
                batches = list(ds.scan(batch_records=size, threads=threads))
                _check_same(pa.Table.from_batches(batches), table)
        _check_same(pickle.loads(pickle.dumps(ds)).to_table(), table)  # noqa: S301  made a line before

    def test_loaders_and_views_see_each_record_once(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        ds = self.open(self.write(tmp_path, table), tmp_path)
        loader = ps.Loader(ds, 64, order=ps.Shuffled(seed=0), columns=[], record_numbers="number")
        seen = np.concatenate([batch["number"] for batch in loader])
        assert sorted(seen.tolist()) == list(range(table.num_rows))
        even = ds.filter(lambda batch: np.arange(batch.num_rows) >= 0)
        _check_same(even.to_table(), table)

    def test_it_converts_to_arrow_and_back(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        path = self.write(tmp_path, table)
        ps.convert(path, tmp_path / "other.arrow")
        ending = formats.by_name(self.format).info.extensions[0]
        ps.convert(tmp_path / "other.arrow", tmp_path / f"again{ending}", format=self.format)
        _check_same(self.open(tmp_path / f"again{ending}", tmp_path).to_table(), table)

    def test_the_same_records_are_the_same_bytes(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        first, second = (self.write(tmp_path, table, name) for name in ("one", "two"))
        if Path(first).is_file():
            assert Path(first).read_bytes() == Path(second).read_bytes()

    def test_damaged_files_raise_errors_of_penstock(self, tmp_path: Path) -> None:
        """Reading a file that is truncated or has a wrong bit returns records or raises an error of penstock."""
        path = self.write(tmp_path, self.table(20))
        if not Path(path).is_file():
            return
        data = Path(path).read_bytes()
        for number, damaged in enumerate(_damaged(data)):
            other = tmp_path / f"damaged{number}{Path(path).suffix}"
            other.write_bytes(damaged)
            for damage in ("error", "skip"):
                with suppress(ps.PenstockError):
                    ps.open(other, format=self.format, index="never", damage=damage).to_table()
            other.unlink()


def _damaged(data: bytes) -> Iterator[bytes]:
    """Yield truncated copies, and copies with one wrong bit, spread over the file."""
    rng = np.random.default_rng(2)
    for end in rng.integers(0, len(data), _FLIPS // 4).tolist():
        yield data[:end]
    for bit in rng.integers(0, 8 * len(data), _FLIPS).tolist():
        wrong = bytearray(data)
        wrong[bit // 8] ^= 1 << bit % 8
        yield bytes(wrong)


def _check_same(found: pa.Table, wanted: pa.Table) -> None:
    """Check that two tables have the same columns and values; types may be wider."""
    assert found.schema.names == wanted.schema.names, (
        f"columns {found.schema.names}, not {wanted.schema.names}"
    )
    assert found.num_rows == wanted.num_rows, f"{found.num_rows} records, not {wanted.num_rows}"
    for name in wanted.schema.names:
        one, other = found.column(name).to_pylist(), wanted.column(name).to_pylist()
        wrong = [n for n, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]
        assert not wrong, (
            f"record {wrong[0]}, column {name!r}: {one[wrong[0]]!r}, not {other[wrong[0]]!r}"
        )


def _check_raises(call: Any, kind: type[Exception]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"expected a {kind.__name__}")
