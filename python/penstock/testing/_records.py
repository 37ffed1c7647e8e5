"""The laws about records: what is written reads back, in every way of reading."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, cast, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import formats
from penstock.contract.format import Chunk, Format, FormatInfo, Options
from penstock.framing.format import FramedFormat
from penstock.storage.places import storage_of
from penstock.testing._checks import (
    check_positions,
    check_raises,
    check_ranges,
    check_same,
    check_type,
)
from penstock.testing._files import LawFiles

_OTHERS = ("tfrecord", "parquet", "arrow", "webdataset", "npz", "msgpack")


class RecordLaws(LawFiles):
    """Tests of files without damage."""

    def test_written_records_read_back(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        path = self.write(tmp_path, table)
        ds = self.open(path, tmp_path)
        check_same(ds.to_table(), table)
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
            check_same(pa.table(ds.take(numbers)), wanted)
        check_raises(lambda: ds[table.num_rows], ps.RecordIndexError)

    def test_decode_returns_the_records_in_the_order_asked(self, tmp_path: Path) -> None:
        """`decode` and `pick`, called as `take` does where `at_once` gives nothing."""
        path, table = self.several(tmp_path)
        with closing(self.reader(path)) as reader:
            parts = [part for chunk in reader.chunks() for part in reader.parts(chunk, None)]
            for part in [*parts[:2], *parts[-1:]]:
                last = part.num_records - 1
                asked = np.array([last, 0, last // 2, last // 2, last])
                wanted = table.slice(part.first_record).take(asked)
                what = f"decode of records {asked.tolist()} of the chunk at {part.first_record}: "
                check_same(pa.table(reader.decode(part, asked, None)), wanted, what)
            asked = np.random.default_rng(8).integers(0, table.num_rows, 40)
            if formats.by_name(self.format).info.can_take:
                batches = [reader.decode(*picked, None) for picked in reader.pick(asked)]
                check_same(pa.Table.from_batches(batches), table.take(asked), "pick and decode: ")

    def test_the_writer_counts_its_bytes(self, tmp_path: Path) -> None:
        ending = formats.by_name(self.format).info.extensions[0]
        made = ps.write(
            self.table(self.num_records), tmp_path / f"a{ending}", format=self.format, index=False
        )
        if self.at(made.paths[0]).is_file():
            size = len(self.at(made.paths[0]).read_bytes())
            assert made.num_bytes == size, (
                f"Writer.num_bytes is {made.num_bytes} after close, and the file has {size} bytes"
            )

    def test_columns_are_those_asked_for(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        ds = self.open(self.write(tmp_path, table), tmp_path)
        for names in (table.schema.names[-1:], table.schema.names[::-1]):
            check_same(ds.to_table(names), table.select(names))
            check_same(pa.table(ds.take([3, 1], names)), table.select(names).take([3, 1]))
        check_raises(lambda: ds.to_table(["no such column"]), ps.SchemaError)

    def test_threads_and_batches_change_nothing(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        cut = table.num_rows // 3
        parts = [table.slice(0, cut), table.slice(cut, cut), table.slice(2 * cut)]
        paths = [self.write(tmp_path, part, f"part{n}") for n, part in enumerate(parts)]
        ds = self.open(paths, tmp_path)
        for threads in (1, 3):
            for size in (None, 7, 10_000):
                batches = list(ds.scan(batch_records=size, threads=threads))
                check_same(pa.Table.from_batches(batches), table)
        check_same(pickle.loads(pickle.dumps(ds)).to_table(), table)  # noqa: S301  made a line before

    def test_loaders_and_views_see_each_record_once(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        ds = self.open(self.write(tmp_path, table), tmp_path)
        loader = ps.Loader(ds, 64, order=ps.Shuffled(seed=0), columns=[], record_numbers="number")
        seen = np.concatenate([batch["number"] for batch in loader])
        assert sorted(seen.tolist()) == list(range(table.num_rows))
        even = ds.filter(lambda batch: np.arange(batch.num_rows) >= 0)
        check_same(even.to_table(), table)

    def test_it_converts_to_arrow_and_back(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        path = self.write(tmp_path, table)
        ps.convert(path, tmp_path / "other.arrow")
        ending = formats.by_name(self.format).info.extensions[0]
        ps.convert(tmp_path / "other.arrow", tmp_path / f"again{ending}", format=self.format)
        check_same(self.open(tmp_path / f"again{ending}", tmp_path).to_table(), table)

    def test_the_same_records_are_the_same_bytes(self, tmp_path: Path) -> None:
        table = self.table(self.num_records)
        first, second = (self.write(tmp_path, table, name) for name in ("one", "two"))
        if self.at(first).is_file():
            assert self.at(first).read_bytes() == self.at(second).read_bytes()

    def test_the_facts_of_the_format_have_their_types(self) -> None:
        fmt = formats.by_name(self.format)
        for name, kind in get_type_hints(FormatInfo).items():
            value = getattr(fmt.info, name)
            check_type(f"FormatInfo.{name}", value, get_origin(kind) or kind)
            for one in value if isinstance(value, tuple) else ():
                check_type(f"each of FormatInfo.{name}", one, str)
        assert fmt.info.name, "FormatInfo.name is empty"
        assert fmt.info.extensions, "FormatInfo.extensions is empty"
        for ending in fmt.info.extensions:
            good = ending == ending.lower() and (ending.startswith(".") or fmt.info.is_folder)
            assert good, f"extension {ending!r} is not in small letters with a leading dot"
        kinds: tuple[Any, Any] = (fmt.read_options, fmt.write_options)
        for kind in kinds:
            assert is_dataclass(kind), f"the options {kind.__name__} are not a dataclass"
            cast(type, kind)()  # each option has a default
        is_framed = isinstance(fmt, FramedFormat)
        extends = is_framed or type(fmt).extend is not Format.extend
        assert extends or not fmt.info.can_append, (
            "can_append=True, but Format.extend is not defined"
        )

    def test_a_reader_says_facts_of_the_right_types(self, tmp_path: Path) -> None:
        path, _ = self.several(tmp_path)
        reader = self.reader(path)
        try:
            check_type("Reader.schema", reader.schema, pa.Schema)
            check_type("Reader.num_records", reader.num_records, int)
            if reader.compression is not None:
                check_type("Reader.compression", reader.compression, str)
            check_type("Reader.skipped_files", reader.skipped_files, Sequence)
            chunks = list(reader.chunks())
            record = 0
            for chunk in chunks:
                check_type("a chunk", chunk, Chunk)
                assert chunk.first_record == record, f"a chunk does not begin at record {record}"
                assert 0 <= chunk.start_byte <= chunk.end_byte, "a chunk ends before it begins"
                record += chunk.num_records
            if self.at(path).is_file():
                check_ranges(chunks, len(self.at(path).read_bytes()))
            assert record == reader.num_records, "the chunks do not hold num_records records"
            keeps = formats.by_name(self.format).info.keeps_positions
            assert reader.positions is not None or not keeps, "keeps_positions, but there are none"
            if reader.positions is not None:
                check_positions(reader.positions, record, len(self.at(path).read_bytes()))
        finally:
            reader.close()

    def test_info_verify_and_layout_describe_a_file(self, tmp_path: Path) -> None:
        table = self.table(20)
        path = self.write(tmp_path, table)
        found = ps.info(path)
        assert str(found), "info prints something"
        assert found.num_records == table.num_rows, "info gives the number of records"
        assert ps.verify(path).ok, "verify finds nothing in a file that was just written"
        if self.at(path).is_file():
            self._check_regions(path)
            assert ps.layout(path).ok, "layout shows no damage in a file that was just written"

    def _check_regions(self, path: str) -> None:
        with closing(storage_of(path).source(path)) as source:
            regions = list(formats.by_name(self.format).layout(source, 0, Options(index="never")))
        end = 0
        for region in regions:
            if not region.within:
                assert region.start >= end, f"layout: {region.name!r} overlaps the region before it"
                end = region.end
        assert end <= len(self.at(path).read_bytes()), "layout: a region ends after the file"

    def test_an_index_is_kept_and_renewed(self, tmp_path: Path) -> None:
        """With keeps_positions: the index of a writer and that of a reader agree, and an index of other bytes is not
        used."""
        if not formats.by_name(self.format).info.keeps_positions:
            return
        table = self.table(self.num_records)
        path, kept = self.write(tmp_path, table), tmp_path / "indexes"
        check_same(self.open(path, tmp_path).to_table(), table)
        indexes = [one for one in kept.rglob("*") if one.name.endswith(".penstock")]
        assert len(indexes) == 1, "the reader kept no index: it does not call kept_positions"
        [index] = indexes
        check_same(self.open(path, tmp_path).to_table(), table)
        found = self._positions(path)
        other = self._positions(path, index=str(kept))
        assert np.array_equal(other, found), "the index has other positions"
        ending = formats.by_name(self.format).info.extensions[0]
        ps.write(table, tmp_path / f"b{ending}", format=self.format, index=str(kept))
        other = self._positions(str(tmp_path / f"b{ending}"), index=str(kept))
        assert np.array_equal(other, found), "Writer.positions are wrong"
        more = table.take(np.arange(table.num_rows)[::-1])
        self.write(tmp_path, more)
        check_same(self.open(path, tmp_path).to_table(), more)
        assert index.exists()

    def _positions(self, path: str, **options: Any) -> Any:
        with closing(self.reader(path, **options)) as reader:
            return reader.positions

    def test_records_are_appended(self, tmp_path: Path) -> None:
        """With can_append: the records follow the old ones, the old bytes stay, and a refused append changes nothing."""
        if not formats.by_name(self.format).info.can_append:
            return
        table = self.table(self.num_records)
        cut = table.num_rows // 2
        path, kept = self.write(tmp_path, table.slice(0, cut)), str(tmp_path / "indexes")
        old = self.at(path).read_bytes()
        for first, last in ((cut, cut + 1), (cut + 1, table.num_rows)):
            made = ps.append(table.slice(first, last - first), path, index=kept)
            assert made.num_records == last - first
            check_same(self.open(path, tmp_path).to_table(), table.slice(0, last))
            check_same(ps.open(path, index="never").to_table(), table.slice(0, last))
        whole = self.at(path).read_bytes()
        assert whole.startswith(old), "an append changed the bytes of old records"
        assert ps.verify(path).ok, "verify finds something after an append"
        other = table.rename_columns([f"other {name}" for name in table.schema.names])
        check_raises(lambda: ps.append(other, path), ps.SchemaError)
        assert self.at(path).read_bytes() == whole, "a refused append changed the file"
        self.at(path).write_bytes(whole[:-1])
        with suppress(ps.PenstockError):
            ps.open(path, index="never").to_table()
            return  # such a file is not damaged
        check_raises(lambda: ps.append(table, path), ps.PenstockError)
        assert self.at(path).read_bytes() == whole[:-1], "an append changed a damaged file"

    def test_nulls_are_kept_or_refused(self, tmp_path: Path) -> None:
        table = self.table(20)
        for number, column in enumerate(table.columns):
            values = pa.array(
                [None if n % 3 == 1 else v for n, v in enumerate(column.to_pylist())], column.type
            )
            field = table.schema.field(number).with_nullable(True)
            with_nulls = table.set_column(number, field, values)
            try:
                path = self.write(tmp_path, with_nulls, f"nulls{number}")
            except ps.PenstockError:
                continue
            check_same(self.open(path, tmp_path).to_table(), with_nulls)

    def test_a_schema_is_honoured_or_refused(self, tmp_path: Path) -> None:
        table = self.table(20)
        path = self.write(tmp_path, table)
        own = self.open(path, tmp_path).schema
        first = own.field(0)
        other = pa.int8() if pa.types.is_binary(first.type) else pa.large_binary()
        for asked in (pa.schema([first]), own.set(0, first.with_type(other))):
            try:
                batches = list(self.open(path, tmp_path, schema=asked).scan())
            except (ps.PenstockError, pa.ArrowInvalid):
                continue
            for batch in batches:
                same = (batch.schema.names, batch.schema.types) == (asked.names, asked.types)
                assert same, f"schema= asked for {asked}, and a scan returned {batch.schema}"
                assert batch.validate(full=True) is None

    def test_other_files_are_not_of_the_format(self, tmp_path: Path) -> None:
        fmt = formats.by_name(self.format)
        rng = np.random.default_rng(3)
        for length in [*range(1, 17), *[4096] * 16]:
            data = rng.bytes(length)
            assert not fmt.sniff(data, length), f"sniff accepts random bytes: {data[:16].hex(' ')}"
        for other in _OTHERS:
            if other not in (self.format, *self.similar):
                made = ps.write(
                    {"x": [1, 2, 3]}, tmp_path / "other", format=other, index=False, overwrite=True
                )
                data = self.at(made.paths[0]).read_bytes()
                assert not fmt.sniff(data, len(data)), f"sniff accepts a file of {other}"
