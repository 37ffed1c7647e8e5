"""The format of blocks in docs/reference/new-format.md is that in this folder, satisfies the laws, and shows what they
find."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from block_format import HEAD, BlockFormat, BlockReader, BlockWriter

import penstock as ps
from penstock import formats
from penstock.contract.format import Chunk, Format
from penstock.errors import FormatError
from penstock.testing import FormatLaws
from reading import ROOT

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "reference" / "new-format.md"
NUM_RECORDS, BLOCK_RECORDS = 1000, 100


class Replaceable(BlockFormat):
    """The same format, with a reader and a writer that tests replace."""

    reader: ClassVar[Any] = BlockReader
    writer: ClassVar[Any] = BlockWriter

    def open(self, source: Any, options: Any) -> BlockReader:
        return self.reader(source, options)

    def create(self, sink: Any, schema: Any, options: Any, threads: int) -> BlockWriter:
        return self.writer(sink, schema, options)


class BlockLaws(FormatLaws):
    format = "blocks"

    def table(self, num_records: int) -> pa.Table:
        return pa.table({"note": [b"note %d" % n for n in range(num_records)]})


def register(monkeypatch: pytest.MonkeyPatch, kind: type[Format]) -> None:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    formats.register(kind())


class TestBlocks(BlockLaws):
    @pytest.fixture(autouse=True)
    def _registered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        register(monkeypatch, BlockFormat)


def test_the_page_shows_the_format_as_it_is() -> None:
    assert (HERE / "block_format.py").read_text("utf-8") in PAGE.read_text("utf-8")


class NamesTheFirstRecord(Replaceable):
    class reader(BlockReader):
        def _lost(self, message: str, chunk: Chunk[None]) -> FormatError:
            return super()._lost(message, chunk).at(record=chunk.first_record)


def damaged_file(folder: Path, kind: type[Format], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write ten blocks, of which the fourth is damaged."""
    register(monkeypatch, kind)
    path = folder / "a.blk"
    table = BlockLaws().table(NUM_RECORDS)
    ps.write(table, path, block_records=BLOCK_RECORDS)
    data = bytearray(path.read_bytes())
    heads = [at for at in range(len(data)) if data[at : at + 4] == b"BLCK"]
    data[heads[3] + HEAD.size + 9] ^= 1
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", [BlockFormat, NamesTheFirstRecord])
def test_a_lost_block_is_one_region_with_all_its_records(
    kind: type[Format], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = damaged_file(tmp_path, kind, monkeypatch)
    report = ps.verify(path)
    assert report.num_records == NUM_RECORDS - BLOCK_RECORDS
    [finding] = report.findings
    assert (finding.record, finding.num_records) == (300, BLOCK_RECORDS)
    ds = ps.open(path, damage="skip")
    found = ds.to_table().column("note").to_pylist()
    table = BlockLaws().table(NUM_RECORDS)
    assert found == [note for n, note in enumerate(table["note"].to_pylist()) if n // 100 != 3]
    [region] = ds.damage
    assert region.num_records == BLOCK_RECORDS
    assert (region.start_byte, region.end_byte) == (finding.start_byte, finding.end_byte)
    saved = ps.repair(path, into=tmp_path / "saved.blk")
    assert (saved.num_records, [one.num_records for one in saved.findings]) == (900, [100])


class NamesNoFile(Replaceable):
    class reader(BlockReader):
        def _lost(self, message: str, chunk: Chunk[None]) -> FormatError:
            return FormatError(message)


def test_an_error_without_its_file_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = damaged_file(tmp_path, NamesNoFile, monkeypatch)
    with pytest.raises(FormatError) as caught:
        ps.open(path).to_table()
    assert caught.value.file == str(path)
    ds = ps.open(path, damage="skip")
    ds.to_table()
    assert [region.file for region in ds.damage] == [str(path)]


class SortsInDecode(Replaceable):
    class reader(BlockReader):
        def decode(self, chunk: Any, records: Any, columns: Any) -> pa.RecordBatch:
            return super().decode(chunk, None if records is None else np.sort(records), columns)


class ForgetsTheCutBlock(Replaceable):
    class reader(BlockReader):
        def _find_blocks(self) -> None:
            super()._find_blocks()
            self._fault = None


class CountsNoBytes(Replaceable):
    class writer(BlockWriter):
        num_bytes = 0  # type: ignore[assignment]


class EmptyInPlaceOfErrors(Replaceable):
    class reader(BlockReader):
        def _inflated(self, chunk: Chunk[None]) -> bytes:
            try:
                return super()._inflated(chunk)
            except FormatError:
                return bytes(4 * chunk.num_records)  # empty records in place of an error


class BytesAfterTheFile(Replaceable):
    class reader(BlockReader):
        def _add(self, start: int, end: int, num_records: int) -> None:
            super()._add(start, max(end, 2 * start), num_records)


@pytest.mark.parametrize(
    ("broken", "law", "message"),
    [
        (SortsInDecode, "decode_returns_the_records_in_the_order_asked", "decode of records"),
        (ForgetsTheCutBlock, "a_truncated_file_is_found", "records, and reports nothing"),
        (CountsNoBytes, "the_writer_counts_its_bytes", "num_bytes is 0 after close"),
        (EmptyInPlaceOfErrors, "skipped_damage_is_reported", "this is not an error"),
        (BytesAfterTheFile, "a_reader_says_facts_of_the_right_types", "begin before the end"),
    ],
)
def test_each_law_finds_the_blocks_that_break_it(
    broken: type[Format],
    law: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(monkeypatch, broken)
    with pytest.raises(AssertionError, match=message):
        getattr(BlockLaws(), f"test_{law}")(tmp_path)
