"""Some columns of a local tar are read without the other members, if these are large."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tars import END, member

import penstock as ps
from penstock.errors import ChangedError, FormatError

LARGE = 100_000


def bytes_read() -> int:
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


def archive(path: Path, num_records: int = 200) -> bytes:
    parts = [
        member(f"{n}.jpg", bytes([n % 251]) * LARGE)
        + member(f"{n}.CLS", str(n).encode())
        + member(f"{n}.txt", b"text %d" % n)
        for n in range(num_records)
    ]
    data = b"".join([*parts, END])
    path.write_bytes(data)
    return data


@pytest.mark.parametrize("columns", [["cls"], ["txt", "__key__"], ["__url__"], []])
@pytest.mark.parametrize("is_indexed", [False, True])
def test_large_members_of_other_columns_are_not_read(
    tmp_path: Path, columns: list[str], is_indexed: bool
) -> None:
    path = tmp_path / "a.tar"
    size = len(archive(path))
    if is_indexed:
        ps.index(str(path))
    ds = ps.open(str(path), checksums="headers")
    ds.to_table(columns=columns)  # imports modules
    before = bytes_read()
    found = ds.to_table(columns=columns)
    assert bytes_read() - before < size / 8
    assert found.num_rows == 200
    if "cls" in columns:
        assert found["cls"].to_pylist() == list(range(200))
    if "txt" in columns:
        assert found["txt"].to_pylist() == [f"text {n}" for n in range(200)]


def test_a_condition_reads_its_columns_and_the_wanted_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    size = len(archive(path))
    ds = ps.open(str(path), index="never")
    ds.to_table(columns=["txt"], where="cls >= 198")  # imports modules
    before = bytes_read()
    found = ds.to_table(columns=["txt"], where="cls >= 198")
    assert bytes_read() - before < size / 8
    assert found["txt"].to_pylist() == ["text 198", "text 199"]
    (whole,) = ds.to_table(where="cls == 150")["jpg"].to_pylist()
    assert whole == bytes([150]) * LARGE


SIZES = st.sampled_from([0, 1, 511, 512, 3000, 4096, 20_000, 70_000, 300_000])
MEMBERS = st.dictionaries(st.sampled_from(["jpg", "cls", "txt", "TXT.gz", "bin"]), SIZES)
NAMES = st.sampled_from(["", "folder/", "x" * 150 + "/"])


def contents(field: str, size: int, number: int) -> bytes:
    if field == "cls":
        return str(number).encode() + b" " * min(size, 3000)
    if field == "TXT.gz":
        return gzip.compress(b"%d" % number, mtime=0)
    return (b"%06d" % number * (size // 6 + 1))[:size]


def written(path: Path, records: Sequence[tuple[str, dict[str, int]]]) -> None:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for number, (folder, fields) in enumerate(records):
            for field, size in fields.items():
                data = contents(field, size, number)
                info = tarfile.TarInfo(f"{folder}{number}.{field}")
                info.size = len(data)
                info.pax_headers = {"comment": "é" * number}
                tar.addfile(info, io.BytesIO(data))


@given(
    records=st.lists(st.tuples(NAMES, MEMBERS), min_size=1, max_size=30),
    columns=st.sets(st.sampled_from(["jpg", "cls", "txt", "txt.gz", "bin", "__key__"])),
    repeats=st.sampled_from([1, 9]),
)
def test_columns_are_the_same_as_those_of_a_whole_read(
    tmp_path_factory: Any,
    records: list[tuple[str, dict[str, int]]],
    columns: set[str],
    repeats: int,
) -> None:
    path = tmp_path_factory.mktemp("t") / "a.tar"
    written(path, records * repeats)
    whole = ps.open(str(path), index="never").to_table()
    names = [name for name in whole.column_names if name in columns]
    wanted = whole.select(names)
    found = ps.open(str(path), index="never").to_table(columns=names)
    assert found.equals(wanted) if names else found.num_rows == whole.num_rows
    ps.index(str(path))
    for checksums in ("all", "headers"):
        found = ps.open(str(path), checksums=checksums).to_table(columns=names)
        assert found.equals(wanted) if names else found.num_rows == whole.num_rows


def fault(path: Path, columns: list[str] | None, **how: Any) -> tuple[Any, ...]:
    schema = pa.schema([("jpg", pa.binary()), ("cls", pa.int64()), ("txt", pa.string())])
    rows = 0
    with pytest.raises(FormatError) as raised:
        for batch in ps.open(str(path), schema=schema, **how).scan(columns=columns):
            rows += batch.num_rows
    error = raised.value
    return type(error), error.message, error.record, error.byte, rows if columns else None


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("place", [150, 124, 156, 0])
def test_a_damaged_header_is_the_same_error(tmp_path: Path, place: int, is_indexed: bool) -> None:
    path = tmp_path / "a.tar"
    data = bytearray(archive(path, 60))
    if is_indexed:
        ps.index(str(path))
    at = data.index(b"40.jpg")
    data[at + place] ^= 1
    with path.open("r+b") as file:
        file.seek(at + place)
        file.write(data[at + place : at + place + 1])
    how = {"index": "beside" if is_indexed else "never", "checksums": "headers"}
    assert fault(path, ["cls"], **how)[:4] == fault(path, None, **how)[:4]


@pytest.mark.parametrize("cut", [3_000_000, 3_000_700, 2_999_808])
def test_a_truncated_archive_is_the_same_error(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(archive(path, 60)[:cut])
    assert fault(path, ["cls"], index="never")[:4] == fault(path, None, index="never")[:4]


def test_all_is_read_to_compare_whole_records_with_their_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    size = len(archive(path))
    ps.index(str(path))
    before = bytes_read()
    ps.open(str(path)).to_table(columns=["cls"])
    assert bytes_read() - before >= size


def test_a_file_that_is_truncated_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    archive(path, 60)
    ds = ps.open(str(path), index="never")
    assert ds.schema.names == ["__key__", "cls", "jpg", "txt", "__url__"]
    with path.open("r+b") as file:
        file.truncate(3_000_000)
    with pytest.raises(ChangedError):
        ds.to_table(columns=["cls"])
