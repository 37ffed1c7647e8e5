"""Files that do not store the positions of their records: a reader or a writer keeps these in an index."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from log_format import LogFormat, LogReader
from penstock import formats
from penstock.framing.index import positions, sidecar
from penstock.storage.local import LocalStorage
from reading import index_of

PAYLOADS = [b"payload %d" % n * (n % 60) for n in range(20_000)]


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch, index_beside: None) -> None:
    monkeypatch.setattr(formats, "FORMATS", list(formats.FORMATS))  # put back afterwards
    formats.register(LogFormat())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "a.log1"
    ps.write({"payload": PAYLOADS}, found, index=False)
    return found


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files through which readers had to read to find the records."""
    found: list[str] = []
    find = LogReader.find

    def counted(self: LogReader, starts: list[int]) -> int:
        found.append(os.path.basename(self.source.path))
        return find(self, starts)

    monkeypatch.setattr(LogReader, "find", counted)
    return found


def test_only_the_first_reader_reads_through_the_file(path: Path, passes: list[str]) -> None:
    for _ in range(3):
        ds = ps.open(path)
        assert (len(ds), ds[-1]["payload"]) == (20_000, PAYLOADS[-1])
        assert ds.take([7, 19_000, 7])["payload"].to_pylist() == [
            PAYLOADS[n] for n in (7, 19_000, 7)
        ]
    assert passes == ["a.log1"]


def test_a_file_with_the_index_of_its_writer_is_never_read_through(
    tmp_path: Path, passes: list[str]
) -> None:
    ps.write({"payload": PAYLOADS}, tmp_path / "b.log1", num_shards=2)
    ds = ps.open(tmp_path / "b@2.log1")
    assert ds.to_table()["payload"].to_pylist() == PAYLOADS
    assert passes == []


def test_the_index_follows_an_append(path: Path, passes: list[str]) -> None:
    ps.index(path)
    for n in range(3):
        ps.append({"payload": [b"new %d" % n]}, path)
    assert ps.open(path).to_table()["payload"].to_pylist() == [
        *PAYLOADS,
        b"new 0",
        b"new 1",
        b"new 2",
    ]
    assert passes == ["a.log1"]


def test_the_index_of_other_bytes_is_not_used(path: Path, passes: list[str]) -> None:
    len(ps.open(path))
    other = PAYLOADS[::-1]
    ps.write({"payload": other}, path, index=False, overwrite=True)
    assert ps.open(path).to_table()["payload"].to_pylist() == other
    shutil.copy(index_of(path), path.parent / "kept")
    copy = path.with_name("b.log1")
    ps.write({"payload": PAYLOADS}, copy, index=False)
    shutil.copy(path.parent / "kept", index_of(copy))  # of a file of the same size
    assert ps.open(copy).to_table()["payload"].to_pylist() == PAYLOADS


def test_the_index_of_another_format_is_not_used(path: Path, passes: list[str]) -> None:
    class Other(LogFormat):
        info = replace(LogFormat.info, name="other log", extensions=(".log2",))

    formats.register(Other())
    for name in ("log", "other log", "other log"):
        assert len(ps.open(path, format=name)) == 20_000
    assert len(passes) == 2


def test_a_damaged_file_gets_no_index_and_its_first_records_are_read(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(ps.TruncatedError, match="the last record is cut") as caught:
        len(ps.open(path))
    assert caught.value.record == 19_999
    ds = ps.open(path, damage="skip")
    assert ds.to_table()["payload"].to_pylist() == PAYLOADS[:-1]
    assert [(r.end_byte, r.num_records) for r in ds.damage] == [(len(data) - 1, None)]
    report = ps.verify(path)
    assert (report.num_records, len(report.findings)) == (19_999, 1)
    assert ps.repair(path, into=path.with_name("c.log1")).num_records == 19_999
    assert not index_of(path).exists()


def test_verify_and_repair_store_no_index(path: Path) -> None:
    assert ps.verify(path).ok
    ps.repair(path, into=path.with_name("c.log1"), index=False)
    assert not index_of(path).exists()


def test_verify_and_repair_name_the_bytes_of_a_bad_record(path: Path) -> None:
    starts = np.cumsum([4, *(8 + len(payload) for payload in PAYLOADS)])
    data = bytearray(path.read_bytes())
    for record in (1, 9_999):
        data[starts[record] + 9] ^= 1
    path.write_bytes(data)
    wanted = [(n, int(starts[n]), int(starts[n + 1])) for n in (1, 9_999)]
    for report in (ps.verify(path), ps.repair(path, into=path.with_name("c.log1"))):
        assert [(f.record, f.start_byte, f.end_byte) for f in report.findings] == wanted
    ds = ps.open(path, damage="skip")
    loader = ps.Loader(ds, 100)
    assert sum(len(batch["payload"]) for batch in loader) == 19_998
    found = sorted({(r.start_byte, r.end_byte) for r in ds.damage})
    assert found == [place[1:] for place in wanted]


def test_layout_shows_one_record(path: Path) -> None:
    regions = ps.layout(path, record=2).regions
    assert [region.name for region in regions] == [
        "not described",
        "records 0 to 1",
        "record 2",
        "records 3 to 19999",
    ]
    with pytest.raises(ps.RecordIndexError):
        ps.layout(path, record=20_000)


def test_index_keeps_checksums_and_positions_together(path: Path, passes: list[str]) -> None:
    assert ps.index(path) == ps.index(path, checksums=True) == [str(index_of(path))]
    index = sidecar.load(str(index_of(path)), LocalStorage())
    assert index.blocks is not None
    assert index.positions
    assert len(ps.open(path, checksums="index")) == 20_000
    assert len(passes) >= 1
    info = ps.info(path).shards[0]
    assert (info.index, info.index_path) == ("found", str(index_of(path)))


@given(st.lists(st.integers(0, 1 << 20), max_size=30), st.text(max_size=20))
def test_positions_are_stored_exactly(sizes: list[int], name: str) -> None:
    edges = np.cumsum([4, *sizes])
    data = positions.to_bytes(name, edges)
    found = positions.from_bytes(data, name, int(edges[-1]))
    assert found is not None
    assert found.tolist() == edges.tolist()
    assert positions.from_bytes(data, name + "x", int(edges[-1])) is None
    assert positions.from_bytes(data, name, int(edges[-1]) - 1) is None
    assert positions.from_bytes(data[:-1], name, int(edges[-1])) is None


def test_a_failing_append_changes_nothing(path: Path) -> None:
    old = path.read_bytes()

    def batches():  # type: ignore[no-untyped-def]
        yield pa.record_batch({"payload": pa.array([b"new"], pa.binary())})
        raise RuntimeError("the source fails")

    with pytest.raises(RuntimeError):
        ps.append(batches(), path)
    with pytest.raises(ps.SchemaError):
        ps.append({"payload": [b"new"], "more": [1]}, path)
    assert ps.append({"payload": pa.array([], pa.binary())}, path).paths == ()
    assert path.read_bytes() == old
    assert sorted(p.name for p in path.parent.iterdir()) in (
        ["a.log1"],
        [index_of(path).name, "a.log1"],
    )
