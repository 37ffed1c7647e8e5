"""Parquet: the corpus, options, edges, damage."""

from __future__ import annotations

import gc
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columnar_cases import Broken, numbers, of_every_kind, opened, scan, take, write
from columnar_corpus import cases, check_bounds, check_case, outcomes

import penstock as ps
from penstock.formats.parquet import format as parquet
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
    monkeypatch.setattr(parquet, "CHUNK_RECORDS", 70)
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
    monkeypatch.setattr(parquet, "CHUNK_RECORDS", 50)
    reader = opened(PARQUET, stored(tmp_path / "a", thousand()))
    made: list[int] = []
    plain = reader._open  # type: ignore[attr-defined]
    monkeypatch.setattr(reader, "_open", lambda: (made.append(1), plain())[1])
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


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
    whole = stored(tmp_path / "a", numbers_table(20)).read_bytes()
    for length in range(len(whole)):
        (tmp_path / "b").write_bytes(whole[:length])
        with pytest.raises(ps.FormatError) as caught:
            opened(PARQUET, tmp_path / "b")
        assert caught.value.file == str(tmp_path / "b")


def numbers_table(count: int) -> pa.Table:
    return pa.Table.from_batches([numbers(count)])


def test_no_flipped_bit_of_a_page_is_silent(tmp_path: Path) -> None:
    batch = numbers(20)
    path = write(PARQUET, tmp_path / "a", [batch], batch.schema, compression="none")
    whole = Path(path).read_bytes()
    table = pa.Table.from_batches([batch])
    end = next(iter(opened(PARQUET, path).chunks())).end_byte
    kinds: set[str] = set()
    for at in range(4, end):
        (tmp_path / "b").write_bytes(
            whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        )
        try:
            # A page's header is under no checksum: there a flip may change nothing.
            assert scan(opened(PARQUET, tmp_path / "b")).equals(table)
        except ps.FormatError as error:
            kinds.add(type(error).__name__)
            assert error.file == str(tmp_path / "b")
        except ps.UnsupportedError:
            pass
    assert "ChecksumError" in kinds


def test_a_broken_row_group_leaves_the_others_readable(tmp_path: Path) -> None:
    batch = numbers(300)
    path = write(PARQUET, tmp_path / "a", [batch], batch.schema, row_group_records=100)
    whole = bytearray(Path(path).read_bytes())
    whole[200] ^= 0xFF
    (tmp_path / "b").write_bytes(whole)
    reader = opened(PARQUET, tmp_path / "b")
    first, second, third = reader.chunks()
    for _ in range(2):
        with pytest.raises(ps.FormatError):
            reader.decode(first, None, None)
    assert reader.decode(second, None, None).equals(batch.slice(100, 100))
    assert reader.decode(third, None, None).equals(batch.slice(200, 100))


def test_checksums_can_be_left_out(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": np.arange(1000)})
    options = {"compression": "none", "dictionary": False}
    whole = bytearray(
        Path(write(PARQUET, tmp_path / "a", [batch], batch.schema, **options)).read_bytes()
    )
    whole[2000] ^= 1
    (tmp_path / "b").write_bytes(whole)
    with pytest.raises(ps.ChecksumError, match="page's checksum"):
        scan(opened(PARQUET, tmp_path / "b"))
    assert scan(opened(PARQUET, tmp_path / "b", checksums="none")).num_rows == 1000


def encrypted_columns() -> bytes:
    """A file whose footer is readable, and one of whose columns is not."""
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Keys(encryption.KmsClient):  # type: ignore[misc, name-defined]
        def wrap_key(self, key: bytes, master: str) -> bytes:
            return key.hex().encode()

        def unwrap_key(self, key: bytes, master: str) -> bytes:
            return bytes.fromhex(key.decode())

    factory = encryption.CryptoFactory(lambda _: Keys())
    plan = encryption.EncryptionConfiguration(
        "footer", column_keys={"c": ["a"]}, plaintext_footer=True
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), plan)
    made = io.BytesIO()
    table = pa.table({"a": [1, 2], "b": [3, 4]})
    with pq.ParquetWriter(made, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    return made.getvalue()


def test_an_encrypted_column_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(encrypted_columns())
    reader = opened(PARQUET, tmp_path / "a")
    assert scan(reader, ["b"]).to_pydict() == {"b": [3, 4]}
    with pytest.raises(ps.UnsupportedError, match="encrypted"):
        scan(reader)


def test_known_facts_of_an_encrypted_column_can_be_described(tmp_path: Path) -> None:
    """pyarrow ends the process if it is asked for the metadata of such a column."""
    (tmp_path / "a.parquet").write_bytes(encrypted_columns())
    info = ps.info(tmp_path / "a.parquet")
    assert info.num_records == 2
    assert info.shards[0].compression == "snappy"


def test_the_codecs_equal_those_that_pyarrow_reports() -> None:
    compared = 0
    for case in cases("parquet"):
        if not case.path.endswith(".parquet"):
            continue  # fuzzed, or encrypted: pyarrow may not survive the question
        metadata = pq.read_metadata(case.path)
        reader = opened(PARQUET, case.path)
        group = metadata.row_group(0) if metadata.num_row_groups else None
        columns = range(group.num_columns) if group is not None else ()
        told = {group.column(c).compression.lower() for c in columns}
        # pyarrow has no word for the newer of the two LZ4s.
        told = {"lz4" if codec == "unknown" else codec for codec in told} - {"uncompressed"}
        assert reader.compression == ", ".join(sorted(told)), case
        compared += 1
    assert compared > 30


def test_hostile_footers_end_in_errors(tmp_path: Path) -> None:
    """Every byte of the footer replaced in turn: claims, codecs, types. No crash, no flood."""
    table = pa.table({"a": [1, 2, 3], "b": [["x"], [], None]})
    # Without the Arrow schema, so that the bytes under attack are Parquet's own.
    whole = stored(tmp_path / "a", table, store_schema=False).read_bytes()
    end = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    files: list[str] = []
    for at in range(end, len(whole) - 8):
        path = tmp_path / str(at)
        path.write_bytes(whole[:at] + b"\x00\x7f\xff"[at % 3 :][:1] + whole[at + 1 :])
        files.append(str(path))
    for outcome in outcomes("parquet", files, compare=False):
        check_bounds(outcome)


def test_a_deeply_nested_schema_ends_in_an_error(tmp_path: Path) -> None:
    kind = pa.int32()
    for _ in range(200):
        kind = pa.list_(kind)
    path = stored(tmp_path / "a", pa.schema([("a", kind)]).empty_table())
    deep = deep_footer(20_000)
    (tmp_path / "b").write_bytes(b"PAR1" + deep + len(deep).to_bytes(4, "little") + b"PAR1")
    for outcome in outcomes("parquet", [str(path), str(tmp_path / "b")]):
        check_bounds(outcome)
        assert outcome["error"] == "LimitError"
        assert "nesting=100" in outcome["message"]


def deep_footer(levels: int) -> bytes:
    """FileMetaData in Thrift's compact protocol: groups within groups, one child each."""
    group = b"\x35\x00\x18\x01a\x15\x02\x00"  # repetition, name "a", one child
    leaf = b"\x15\x02\x25\x00\x18\x01a\x00"
    count = levels + 2
    size = bytes([0x80 | count & 0x7F, 0x80 | count >> 7 & 0x7F, count >> 14])
    root = b"\x48\x01r\x15\x02\x00"
    return b"\x15\x02\x19\xfc" + size + root + group * levels + leaf + b"\x16\x00\x19\x0c\x00"


def test_nesting_within_the_limit_is_read(tmp_path: Path) -> None:
    kind = pa.int32()
    for _ in range(20):
        kind = pa.list_(pa.struct([("a", kind)]))
    path = stored(tmp_path / "a", pa.schema([("a", kind), ("b", pa.int8())]).empty_table())
    assert opened(PARQUET, path).schema.field("a").type == kind
    with pytest.raises(ps.LimitError, match="nesting=59"):
        opened(PARQUET, path, limits=ps.Limits(nesting=59))


def test_nesting_is_limited_under_a_pyarrow_without_such_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_has_depth_limit", lambda: False)
    test_nesting_within_the_limit_is_read(tmp_path)
    deep = deep_footer(20_000)
    (tmp_path / "b").write_bytes(b"PAR1" + deep + len(deep).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(ps.LimitError, match="nesting=100"):
        opened(PARQUET, tmp_path / "b")


def test_a_footer_beyond_the_limit_says_how_to_raise_it(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", thousand())
    with pytest.raises(ps.LimitError, match="footer_bytes") as caught:
        opened(PARQUET, path, limits=ps.Limits(footer_bytes=100))
    assert "limits={'footer_bytes': " in str(caught.value)


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


@pytest.mark.parametrize("codec", ["none", "zstd", "snappy"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_a_page_beyond_the_limit_is_refused_before_it_is_decompressed(
    codec: str, dictionary: bool, tmp_path: Path
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"id": range(3), "b": [b"", b"x" * 3_000_000, b""], "s": [{"t": "a"}] * 3})
    pq.write_table(table, path, compression=codec, use_dictionary=dictionary)
    for damage in ("error", "skip"):
        short = ps.open(path, limits={"record_bytes": 1_000_000}, damage=damage)
        assert len(short) == 3
        assert next(iter(short.scan(columns=["id", "s"]))).num_rows == 3
        with pytest.raises(ps.LimitError, match="record_bytes") as caught:
            short.take([0])
        assert (caught.value.field, caught.value.file) == ("b", str(path))
    raised = ps.open(path, limits={"record_bytes": 3_100_000})
    assert raised.take([1], columns=["b"])["b"][0].as_py() == b"x" * 3_000_000
