"""Parquet files that are damaged, encrypted or hostile."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from columnar_cases import numbers, opened, scan, write
from columnar_corpus import cases, check_bounds, outcomes
from test_parquet import PARQUET, stored, thousand

import penstock as ps
from penstock.formats.parquet import format as parquet


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
