"""Parquet: the corpus, options and edge cases."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columnar_cases import Broken, numbers, of_every_kind, opened, scan, take, write
from columnar_corpus import cases, check_case, outcomes

import penstock as ps
from penstock.formats.parquet import _dividing as dividing
from penstock.formats.parquet.format import ParquetFormat

PARQUET = ParquetFormat()


def stored(path: Path, table: pa.Table, **options: Any) -> Path:
    pq.write_table(table, path, **options)
    return path


def thousand() -> pa.Table:
    return pa.Table.from_batches([numbers(1000)])


@pytest.mark.parametrize("mmap", [False, True])
def test_corpus_gives_what_its_manifest_states(mmap: bool) -> None:
    found = cases("parquet")
    assert len(found) > 60
    for case, outcome in zip(
        found, outcomes("parquet", [c.path for c in found], mmap), strict=True
    ):
        check_case(case, outcome)


def test_encrypted_corpus_is_refused_clearly() -> None:
    files = [c.path for c in cases("parquet") if c.path.endswith(".encrypted")]
    for outcome in outcomes("parquet", files):
        assert outcome["error"] == "UnsupportedError"
        assert "encrypted" in outcome["message"]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "brotli", "lz4", "none", None])
def test_every_kind_survives_a_round_trip(tmp_path: Path, compression: str | None) -> None:
    batch = of_every_kind()
    path = write(PARQUET, tmp_path / "a", [batch], batch.schema, compression=compression)
    found = scan(opened(PARQUET, path))
    assert found.schema.equals(batch.schema)
    assert found.equals(pa.Table.from_batches([batch]))
    assert pq.read_table(path).equals(pa.Table.from_batches([batch]))


def test_row_groups_do_not_depend_on_how_the_input_was_cut(tmp_path: Path) -> None:
    batch = pa.concat_batches([of_every_kind().slice(i % 3, 1) for i in range(300)])
    written: set[bytes] = set()
    for step in (1, 7, 100, 300):
        pieces = [batch.slice(i, step) for i in range(0, 300, step)]
        path = write(PARQUET, tmp_path / "a", pieces, batch.schema, row_group_bytes=5000)
        written.add(Path(path).read_bytes())
    assert len(written) == 1
    assert pq.ParquetFile(tmp_path / "a").num_row_groups > 3


def test_row_groups_end_at_records_or_bytes(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": pa.array([b"x" * 100] * 100), "b": np.arange(100)})
    by_records = write(PARQUET, tmp_path / "a", [batch], batch.schema, row_group_records=30)
    rows = [pq.ParquetFile(by_records).metadata.row_group(i).num_rows for i in range(4)]
    assert rows == [30, 30, 30, 10]
    by_bytes = write(PARQUET, tmp_path / "b", [batch], batch.schema, row_group_bytes=1080)
    assert pq.ParquetFile(by_bytes).metadata.row_group(0).num_rows == 10


def test_a_record_larger_than_a_row_group_is_alone_in_its_chunk(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [b"x", b"y" * 1000, b"z"]})
    path = write(PARQUET, tmp_path / "a", [batch], batch.schema, row_group_bytes=10)
    assert [c.num_records for c in opened(PARQUET, path).chunks()] == [1, 1, 1]


def test_take_gives_the_order_asked_for_with_repeats(tmp_path: Path) -> None:
    table = thousand()
    reader = opened(PARQUET, stored(tmp_path / "a", table, row_group_size=90))
    asked = np.random.default_rng(0).integers(0, 1000, 256)
    assert take(reader, asked).equals(table.take(asked))
    assert take(reader, asked, ["values", "id"]).equals(table.take(asked).select(["values", "id"]))
    assert list(reader.pick(np.array([], np.int64))) == []


def test_take_decodes_each_row_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = opened(PARQUET, stored(tmp_path / "a", thousand(), row_group_size=100))
    read: list[int] = []
    plain = reader._read  # type: ignore[attr-defined]
    monkeypatch.setattr(
        reader, "_read", lambda part, *rest: (read.append(part.group), plain(part, *rest))[1]
    )
    take(reader, np.random.default_rng(0).integers(0, 1000, 256))
    assert read == list(range(10))


@pytest.mark.parametrize("record", [-1, 1000, 1 << 60])
def test_a_record_that_is_not_there_is_an_index_error(tmp_path: Path, record: int) -> None:
    reader = opened(PARQUET, stored(tmp_path / "a", thousand()))
    with pytest.raises(ps.RecordIndexError, match="1000 records") as caught:
        take(reader, [5, record])
    assert caught.value.record == record


def test_selection_within_a_chunk(tmp_path: Path) -> None:
    table = thousand()
    reader = opened(PARQUET, stored(tmp_path / "a", table, row_group_size=100))
    chunk = list(reader.chunks())[3]
    found = reader.decode(chunk, np.array([7, 7, 0, 99]), ["text"])
    assert found.column("text").equals(table["text"].take([307, 307, 300, 399]).combine_chunks())


def test_columns_are_top_level_names_even_with_dots(tmp_path: Path) -> None:
    table = pa.table({"a": [{"b": 1, "c": 2}], "a.b": [3], "d": [4]})
    reader = opened(PARQUET, stored(tmp_path / "a", table))
    for columns in (["a"], ["a.b"], ["d", "a.b"], ["a.b", "a"], []):
        assert scan(reader, columns).equals(table.select(columns))
    with pytest.raises(ps.SchemaError, match=r"no such column; the file has: a, a\.b, d") as caught:
        scan(reader, ["e"])
    assert (caught.value.field, caught.value.file) == ("e", str(tmp_path / "a"))


def test_no_columns_still_count_records(tmp_path: Path) -> None:
    reader = opened(PARQUET, stored(tmp_path / "a", thousand(), row_group_size=300))
    assert scan(reader, []).num_rows == 1000
    assert take(reader, [1, 999, 1], []).num_rows == 3


def test_large_row_groups_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing, "CHUNK_RECORDS", 70)
    table = thousand()
    reader = opened(PARQUET, stored(tmp_path / "a", table, row_group_size=500))
    chunks = list(reader.chunks())
    assert len(chunks) == 16
    assert scan(reader).equals(table)
    backwards = [reader.decode(c, None, None) for c in reversed(chunks)]
    assert pa.Table.from_batches(backwards[::-1]).equals(table)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda c: reader.decode(c, None, None), chunks))
    assert pa.Table.from_batches(found).equals(table)
    asked = np.random.default_rng(0).integers(0, 1000, 256)
    assert take(reader, asked).equals(table.take(asked))


def test_parts_of_a_row_group_are_decoded_once_by_several_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing, "CHUNK_RECORDS", 50)
    reader = opened(PARQUET, stored(tmp_path / "a", thousand()))
    made: list[int] = []
    file = reader._file  # type: ignore[attr-defined]
    plain = file.open
    monkeypatch.setattr(file, "open", lambda: (made.append(1), plain())[1])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda c: reader.decode(c, None, None), list(reader.chunks())))
    assert len(made) <= 4


@pytest.mark.parametrize("mmap", [False, True])
def test_many_threads_decode_one_reader(tmp_path: Path, mmap: bool) -> None:
    table = thousand()
    reader = opened(PARQUET, stored(tmp_path / "a", table, row_group_size=50), mmap=mmap)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            found = pool.map(lambda c: reader.decode(c, None, None), list(reader.chunks()))
            assert pa.Table.from_batches(found).equals(table)


def test_sources_that_are_not_local_files_are_read_by_position(tmp_path: Path) -> None:
    from penstock.contract.format import Options
    from penstock.storage import MemoryStorage

    table = thousand()
    path = stored(tmp_path / "a", table, row_group_size=100)
    remote = MemoryStorage({"memory://a": Path(path).read_bytes()}).source("memory://a")

    reader = PARQUET.open(remote, Options())
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda c: reader.decode(c, None, None), list(reader.chunks()))
        assert pa.Table.from_batches(found).equals(table)


def test_schema_casts_and_says_what_does_not_fit(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", pa.table({"a": [1, 300], "b": ["x", None]}))
    wide = pa.schema([("b", pa.large_string()), ("a", pa.float64())])
    assert scan(opened(PARQUET, path, schema=wide)).schema == wide
    with pytest.raises(ps.SchemaError, match="300") as caught:
        scan(opened(PARQUET, path, schema=pa.schema([("a", pa.int8())])))
    assert (caught.value.field, caught.value.file) == ("a", str(path))
    with pytest.raises(ps.SchemaError, match="1 values are missing"):
        scan(opened(PARQUET, path, schema=pa.schema([pa.field("b", pa.string(), nullable=False)])))
    with pytest.raises(ps.SchemaError, match="no such column"):
        opened(PARQUET, path, schema=pa.schema([("c", pa.int8())]))


def test_raw_and_other_schemas_and_unknown_options_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", thousand())
    with pytest.raises(ps.UnsupportedError, match="raw=True"):
        opened(PARQUET, path, raw=True)
    with pytest.raises(ps.UnsupportedError, match=r"pyarrow\.Schema"):
        opened(PARQUET, path, schema={"a": object()})
    with pytest.raises(TypeError, match="parquet has no option 'rows'"):
        opened(PARQUET, path, format_options={"rows": 1})
    with pytest.raises(ValueError, match="compression must be one of"):
        write(PARQUET, tmp_path / "b", [], pa.schema([("a", pa.int8())]), compression="rar")


def test_a_missing_file_stays_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opened(PARQUET, tmp_path / "none")


def test_a_file_without_records_has_no_chunks(tmp_path: Path) -> None:
    schema = of_every_kind().schema
    reader = opened(PARQUET, write(PARQUET, tmp_path / "a", [], schema))
    assert reader.schema.equals(schema)
    assert (list(reader.chunks()), reader.num_records) == ([], 0)


def test_sniffing_reads_the_first_bytes() -> None:
    assert PARQUET.sniff(b"PAR1....", 100)
    assert PARQUET.sniff(b"PARE....", 100)
    assert not PARQUET.sniff(b"PAR1", 4)
    assert not PARQUET.sniff(b"ARROW1\0\0", 100)


def test_a_full_disk_is_an_os_error_and_the_sink_is_left_alone() -> None:
    sink = Broken(room=2000)
    batch = pa.record_batch({"a": np.random.default_rng(0).bytes(1 << 20).split(b"\0")})
    writer = PARQUET.create(sink, batch.schema, PARQUET.write_options(row_group_records=100), 1)
    with pytest.raises(OSError, match="No space left") as caught:
        for _ in range(3):
            writer.write(batch)
        writer.close()
    assert caught.value.errno == 28
    del writer
    gc.collect()
    assert not sink.finished


def test_a_dropped_writer_writes_no_footer(tmp_path: Path) -> None:
    sink = Broken(room=0)
    batch = numbers(10)
    writer = PARQUET.create(sink, batch.schema, PARQUET.write_options(), 1)
    writer.write(batch)
    del writer
    gc.collect()
    assert sink.room == 0


def test_kinds_that_parquet_cannot_hold_are_refused(tmp_path: Path) -> None:
    union = pa.schema([("a", pa.dense_union([pa.field("x", pa.int8())]))])
    with pytest.raises(ps.UnsupportedError):
        write(PARQUET, tmp_path / "a", [], union)
    with pytest.raises(ps.UnsupportedError, match="without columns"):
        write(PARQUET, tmp_path / "a", [], pa.schema([]))


def test_a_batch_with_other_columns_is_a_schema_error(tmp_path: Path) -> None:
    with pytest.raises(ps.SchemaError, match="columns of a batch differ"):
        write(PARQUET, tmp_path / "a", [numbers(3)], pa.schema([("id", pa.int64())]))
