"""`penstock.testing`: penstock's own formats satisfy the laws, and the laws reveal a faulty format."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from log_format import LogFormat, LogReader, LogWriter
from penstock import formats
from penstock.contract.format import Format, FormatInfo, Options, Reader
from penstock.contract.regions import Region
from penstock.storage.base import Source
from penstock.testing import FormatLaws
from penstock.testing._checks import check_same
from penstock.testing._edges import edges_of
from reading import ROOT
from toy_format import SCHEMA, ToyFormat, ToyReader, ToyWriter


class TestTfrecord(FormatLaws):
    format = "tfrecord"


class TestParquet(FormatLaws):
    format = "parquet"


class TestArrow(FormatLaws):
    format = "arrow"


class TestMsgpack(FormatLaws):
    format = "msgpack"


class TestNpz(FormatLaws):
    format = "npz"

    def table(self, num_records: int) -> pa.Table:
        return super().table(num_records).select(["id", "score"])


class Wrong(FormatLaws):
    format = "tfrecord"


def test_the_laws_find_a_reader_that_loses_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ps.Dataset, "to_table", _loses_the_last(ps.Dataset.to_table))
    with pytest.raises(AssertionError, match="999 records, not 1000"):
        Wrong().test_written_records_read_back(tmp_path)


def test_the_laws_find_an_error_that_is_not_of_penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(ps.Dataset, "to_table", broken)
    with pytest.raises(IndexError):
        Wrong().test_damaged_files_raise_errors_of_penstock(tmp_path)


def _loses_the_last(to_table: Any) -> Any:
    return lambda self, *rest, **more: to_table(self, *rest, **more).slice(0, 999)


class ToyLaws(FormatLaws):
    format = "toy"

    def table(self, num_records: int) -> pa.Table:
        values = [b"payload %d" % n for n in range(num_records)]
        return pa.table({"payload": pa.array(values, pa.binary())})


class TestToy(ToyLaws):
    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        register(monkeypatch, ToyFormat)


def register(monkeypatch: pytest.MonkeyPatch, kind: type[Format]) -> None:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    formats.register(kind())


class WithoutDot(ToyFormat):
    info = FormatInfo("toy", ("toy",), lossless=False)


class ListOfEndings(ToyFormat):
    info = FormatInfo("toy", [".toy"], lossless=False)  # type: ignore[arg-type]


class SniffsAll(ToyFormat):
    def sniff(self, head: bytes, size: int) -> bool:
        return True


class Overlapping(ToyFormat):
    def layout(self, source: Any, record: int, options: Any) -> Iterator[Region]:
        yield Region(0, 4, "magic")
        yield Region(2, source.size - 2, "records")


class TupleCompression(ToyFormat):
    class reader(ToyReader):
        compression = ("none", "zlib")  # type: ignore[assignment]


class FewerInChunks(ToyFormat):
    class reader(ToyReader):
        @property
        def num_records(self) -> int:
            return super().num_records + 1


class NullsAsZero(ToyFormat):
    class writer(ToyWriter):
        def bytes_of(self, value: bytes | None) -> bytes:
            return value or b"0"


class EmptyAsZero(ToyFormat):
    class writer(ToyWriter):
        def bytes_of(self, value: bytes | None) -> bytes:
            return super().bytes_of(value) or b"0"


class OthersErrors(ToyFormat):
    class reader(ToyReader):
        def decode(self, chunk: Any, records: Any, columns: Any) -> pa.RecordBatch:
            whole = super().decode(chunk, None, columns)
            return whole if records is None else whole.take(pa.array(records))


class SilentAboutDamage(ToyFormat):
    class reader(ToyReader):
        def found_by(self, threads: int) -> Any:
            return self.chunks()


class NeverSkips(ToyFormat):
    class reader(ToyReader):
        def check_complete(self) -> None:
            if self.fault is not None:
                raise self.fault


class NoChecksums(ToyFormat):
    class reader(ToyReader):
        def payload(self, record: int) -> bytes:
            return self.data[self.starts[record] + 8 : self.starts[record + 1]]


class ClaimsSchema(ToyFormat):
    class reader(ToyReader):
        def __init__(self, source: Any, options: Any) -> None:
            super().__init__(source, options)
            self.schema = options.schema or SCHEMA


@pytest.mark.parametrize(
    ("broken", "law", "message"),
    [
        (WithoutDot, "the_facts_of_the_format_have_their_types", "'toy' .* leading dot"),
        (ListOfEndings, "the_facts_of_the_format_have_their_types", r"extensions is \['.toy'\]"),
        (TupleCompression, "a_reader_says_facts_of_the_right_types", "compression is .* str"),
        (FewerInChunks, "a_reader_says_facts_of_the_right_types", "do not hold num_records"),
        (SniffsAll, "other_files_are_not_of_the_format", "sniff accepts random bytes"),
        (Overlapping, "info_verify_and_layout_describe_a_file", "'records' overlaps"),
        (NullsAsZero, "nulls_are_kept_or_refused", "record 1, column 'payload': b'0', not None"),
        (EmptyAsZero, "edge_values_are_kept_or_refused", "column 'payload': .*b'0', not b''"),
        (OthersErrors, "skipped_damage_is_reported", r"decode of record \d+ raises about \d+"),
        (SilentAboutDamage, "skipped_damage_is_reported", 'damage="skip" reports no region'),
        (NeverSkips, "skipped_damage_is_reported", 'damage="skip" raises about a record'),
        (NoChecksums, "skipped_damage_is_reported", "is not an error, although has_checksums"),
        (ClaimsSchema, "a_schema_is_honoured_or_refused", "schema= asked for"),
    ],
)
def test_each_law_finds_the_format_that_breaks_it(
    broken: type[ToyFormat],
    law: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, broken)
    check = getattr(ToyLaws(), f"test_{law}")
    with pytest.raises(AssertionError, match=message):
        check(tmp_path) if "tmp_path" in check.__annotations__ else check()


class LogLaws(ToyLaws):
    format = "log"


class TestLog(LogLaws):
    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        register(monkeypatch, LogFormat)


class LosesAllToACut(LogFormat):
    class reader(LogReader):
        def find(self, starts: list[int]) -> int:
            found: list[int] = []
            end = super().find(found)
            starts.extend(found)
            return end


class KeepsNothing(LogFormat):
    def open(self, source: Source, options: Options) -> Reader:
        return self.reader(self.info, source, replace(options, index="never"))


class WrongPositions(LogFormat):
    class writer(LogWriter):
        @property
        def positions(self) -> np.ndarray:
            return np.array([4, *self.starts[1:-1], self.starts[-1] - 1])


class TrustsTheIndex(LogFormat):
    class reader(LogReader):
        def payload(self, frame: memoryview) -> bytes:
            return super().payload(memoryview(_with_length(frame)))


def _with_length(frame: memoryview) -> bytes:
    return struct.pack("<I", len(frame) - 8) + bytes(frame[4:])


class AppendsAnotherMagic(LogFormat):
    def extend(self, source: Any, sink: Any, schema: Any, options: Any, threads: int) -> Any:
        return self.create(sink, schema, options, threads)


class AppendsNothing(LogFormat):
    extend = Format.extend


class UnsignedPositions(LogFormat):
    class reader(LogReader):
        @property
        def positions(self) -> np.ndarray:
            return super().positions.astype("u8")


@pytest.mark.parametrize(
    ("broken", "law", "message"),
    [
        (LosesAllToACut, "a_file_cut_in_its_last_record_loses_only_that", "in its last record: "),
        (KeepsNothing, "an_index_is_kept_and_renewed", "the reader kept no index"),
        (WrongPositions, "an_index_is_kept_and_renewed", "Writer.positions are wrong"),
        (TrustsTheIndex, "damage_is_found_at_known_positions", r"about records \[\], not"),
        (AppendsNothing, "the_facts_of_the_format_have_their_types", "extend is not defined"),
        (UnsignedPositions, "a_reader_says_facts_of_the_right_types", "are uint64, not int64"),
    ],
)
def test_each_law_finds_the_format_that_keeps_a_wrong_index(
    broken: type[LogFormat],
    law: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, broken)
    check = getattr(LogLaws(), f"test_{law}")
    with pytest.raises(AssertionError, match=message):
        check(tmp_path) if "tmp_path" in check.__annotations__ else check()


def test_appended_bytes_that_do_not_continue_the_file_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, AppendsAnotherMagic)
    with pytest.raises((AssertionError, ps.PenstockError)):
        LogLaws().test_records_are_appended(tmp_path)


def laws() -> list[str]:
    """The laws, in the order in which pytest runs them: those of a base class first."""
    classes = reversed(FormatLaws.__mro__)
    return [name for one in classes for name in vars(one) if name.startswith("test_")]


def test_what_is_written_is_read_before_it_is_damaged() -> None:
    first_of_damage = laws().index("test_damaged_files_raise_errors_of_penstock")
    undamaged = ("test_written_records_read_back", "test_edge_values_are_kept_or_refused")
    assert all(laws().index(name) < first_of_damage for name in undamaged)
    assert laws()[0] == "test_written_records_read_back"


def test_the_reference_lists_the_laws_in_their_order() -> None:
    page = (ROOT / "docs" / "reference" / "new-format.md").read_text("utf-8")
    listed = re.findall(r"^\| `(test_\w+)` \|", page, re.MULTILINE)
    assert listed == laws()


def test_edges_are_values_of_their_type() -> None:
    kinds = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(), pa.large_binary()]
    kinds += [pa.bool_(), pa.binary(3), pa.list_(pa.float32()), pa.list_(pa.list_(pa.string()))]
    for kind in kinds:
        values = edges_of(kind, nullable=True)
        assert pa.array(values, kind).null_count == 1, kind
        assert None not in edges_of(kind, nullable=False)
    strict = pa.list_(pa.field("item", pa.int64(), nullable=False))
    assert all(None not in one for one in edges_of(strict, nullable=False))
    assert edges_of(pa.list_(pa.int64()), nullable=False)[0] == []
    assert edges_of(pa.uint64(), nullable=False) == [0, 0, 2**64 - 1]
    assert edges_of(pa.timestamp("us"), nullable=True) == []


def test_nan_is_the_same_value_as_nan() -> None:
    values = pa.table({"x": [[1.0, float("nan")], [], None]})
    check_same(values, values)
    with pytest.raises(AssertionError, match="record 0, column 'x'"):
        check_same(pa.table({"x": [[1.0, 2.0], [], None]}), values)
