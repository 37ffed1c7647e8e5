"""A file that has no records raises an error that says what the file is, whatever its name promises."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path

import pyarrow.csv
import pyarrow.json
import pytest

import penstock as ps
from frames import masked
from penstock import formats

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d7a" * 16 + b"\nsize 12345\n"
)
PAGE = b"<!DOCTYPE html>\n<html><body>404</body></html>"
LINES = b'{"a": 1}\n{"a": 2}\n'
SAVED = BytesIO()
with zipfile.ZipFile(SAVED, "w") as archive:  # torch.save writes such an archive
    archive.writestr("archive/data.pkl", pickle.dumps({"a": [1, 2]}))
LOOKS = {
    "Git LFS pointer": POINTER,
    "HTML page": PAGE,
    "XML document": b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>",
    "lines of JSON": LINES,
    "JSON": json.dumps([{"a": n} for n in range(9)], indent=1).encode(),
    "CSV": b"a,b\n1,2\n",
    "text": "un été\n".encode() * 3000,
    "gzip in gzip": gzip.compress(gzip.compress(b"x" * 99)),
    "HTML page, gzipped": gzip.compress(PAGE),
    "picture": b"\xff\xd8\xff\xe0" + bytes(99),
    "zip archive": b"PK\x03\x04" + bytes(99),
    "file of torch.save": SAVED.getvalue(),
    "pickle": pickle.dumps({"a": [1, 2]}),
    "index of penstock": b"PENSTOCK" + bytes(99),
}
ENDINGS = sorted({ending for fmt in formats.FORMATS for ending in fmt.info.extensions})


@pytest.mark.parametrize("ending", ["", ".bin", *ENDINGS])
@pytest.mark.parametrize("what", LOOKS)
def test_the_error_says_what_it_is(tmp_path: Path, what: str, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    path.write_bytes(LOOKS[what])
    if LOOKS[what].startswith(b"PK") and ending == ".npz":
        return  # this is a real one
    with pytest.raises(ps.PenstockError) as refused:
        list(ps.open(path, index="never"))
    if "gzip" in what and "compressed with gzip" in str(refused.value):
        return  # the hint says to unpack it; the result is one of the other files
    assert what in str(refused.value)
    assert refused.value.file == str(path)
    report = ps.verify(path)
    assert not report.ok and what in report.findings[0].message


def test_an_index_is_not_opened_as_data(tmp_path: Path) -> None:
    ps.write({"a": [1]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.FormatError, match="it is an index of penstock"):
        ps.open(tmp_path / ".a.tfrecord.penstock")


def test_an_overlay_and_a_journal_are_not_opened_as_data(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ps.write({"a": [1]}, path)
    ps.add_fields(path, {"b": [2]})
    (overlay,) = (tmp_path / ".a.parquet.penstock-fields").iterdir()
    with pytest.raises(ps.FormatError, match="the fields 'b', which belong to the data file") as no:
        ps.open(overlay)
    assert no.value.hint == f"open {path}, which shows these fields, too"
    journal = tmp_path / ".penstock-convert-0123456789abcdef.json"
    journal.write_text('{"version": 1}')
    with pytest.raises(ps.FormatError, match="the journal of an unfinished job") as no:
        ps.open(journal)
    assert "penstock clean --remove removes what is left of it" in str(no.value)


def test_their_hints_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = {
        "pyarrow": pyarrow,
        "json": json,
        "open": lambda name: StringIO(Path(name).read_text()),
    }
    written = {"lines of JSON": [{"a": 1}, {"a": 2}], "CSV": [{"a": 1, "b": 2}]}
    written["JSON"] = [{"a": n} for n in range(9)]
    written["text"] = [{"text": "un été\n"}] * 3000
    for what, rows in written.items():
        Path("x.tfrecord").write_bytes(LOOKS[what])
        with pytest.raises(ps.FormatError) as refused:
            ps.open("x.tfrecord")
        assert refused.value.hint is not None
        call = refused.value.hint.split(", which")[0].replace(
            "...)", "'made.parquet', overwrite=True)"
        )
        eval(call, {"ps": ps, **names})
        assert list(ps.open("made.parquet")) == rows


def test_a_file_whose_start_was_overwritten_by_text_is_still_repaired(tmp_path: Path) -> None:
    ps.write({"a": [bytes(1000)] * 100}, tmp_path / "a.tfrecord", index=False)
    with open(tmp_path / "a.tfrecord", "r+b") as file:
        file.write(b"a,b\n" * 2000)
    ps.repair(tmp_path / "a.tfrecord", into=tmp_path / "b.tfrecord")
    assert len(ps.open(tmp_path / "b.tfrecord")) > 80


Checksum = Callable[[bytes], int]
WRITERS: dict[str, Checksum] = {
    "none": lambda _: 0,
    "zlib": zlib.crc32,
    "sum": lambda data: 0xFFFFFFFF - sum(data),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", ["x.tfrecord", "x", "x.bin", "x.tfrecord.gz"])
def test_checksums_of_other_writers(tmp_path: Path, writer: str, name: str) -> None:
    path, records = tmp_path / name, [bytes([n]) * (n * 100 + 50) for n in range(20)]
    data = _framed(records, WRITERS[writer], WRITERS[writer])
    path.write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    for options in ({}, {"format": "tfrecord"}):
        if options or name.startswith("x.tfrecord"):
            with pytest.raises(ps.ChecksumError) as wrong:
                list(ps.open(path, raw=True, index="never", **options))
            assert wrong.value.hint == 'open(..., checksums="none")'
    if not name.startswith("x.tfrecord"):
        with pytest.raises(ps.FormatError) as refused:
            ps.open(path)
        assert refused.value.hint == 'open(..., format="tfrecord", checksums="none")'
    ds = ps.open(path, raw=True, format="tfrecord", checksums="none", index="never")
    assert [row["record"] for row in ds] == records


def test_payload_checksums_that_were_left_out(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(_framed([b"a", b"b"], masked, lambda _: 0))
    with pytest.raises(ps.ChecksumError) as wrong:
        list(ps.open(tmp_path / "x.tfrecord", raw=True, index="never"))
    assert wrong.value.hint is not None and 'checksums="headers"' in wrong.value.hint
    ds = ps.open(tmp_path / "x.tfrecord", raw=True, checksums="headers", index="never")
    assert [row["record"] for row in ds] == [b"a", b"b"]


def test_a_damaged_head_is_damage(tmp_path: Path) -> None:
    data = bytearray(_framed([bytes(100)] * 9, masked, masked))
    for byte in range(12):
        wrong = bytearray(data)
        wrong[byte] ^= 4
        (tmp_path / "x.tfrecord").write_bytes(wrong)
        with pytest.raises(ps.PenstockError) as refused:
            list(ps.open(tmp_path / "x.tfrecord", raw=True, index="never"))
        assert "checksums=" not in (refused.value.hint or "")


def _framed(records: list[bytes], head: Checksum, tail: Checksum) -> bytes:
    parts: list[bytes] = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [length, struct.pack("<I", head(length)), record, struct.pack("<I", tail(record))]
    return b"".join(parts)
