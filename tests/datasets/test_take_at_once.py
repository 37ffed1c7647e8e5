"""Records that are read and decoded in one call must equal those of the general path. If anything is wrong with a
record, the general path is used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.framing.read.framed import FramedReader

SMALL = {"number": np.arange(600), "text": [f"value {n}" * (n % 5) for n in range(600)]}
RNG = np.random.default_rng(0)
LARGE = {
    "image": [RNG.bytes(n % 9 * 30_000) for n in range(120)],
    "label": np.arange(120),
    "scores": [list(range(n % 4)) for n in range(120)],
}
LISTS = {"parts": [[RNG.bytes(40_000)] * (n % 4) for n in range(90)], "label": np.arange(90)}
MISSING = {"image": [RNG.bytes(60_000) if n % 3 else None for n in range(120)]}
TWO = {"image": LARGE["image"], "other": LARGE["image"][::-1]}
TABLES = {"small": SMALL, "large": LARGE, "lists": LISTS, "missing": MISSING, "two": TWO}


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each take from a shard, whether it was done in one call."""
    seen: list[bool] = []
    own = FramedReader.at_once

    def watched(self: FramedReader, records: np.ndarray, columns: object) -> pa.RecordBatch | None:
        batch = own(self, records, columns)  # type: ignore[arg-type]
        seen.append(batch is not None)
        return batch

    monkeypatch.setattr(FramedReader, "at_once", watched)
    return seen


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_the_same_records_come_as_by_a_scan(
    name: str, mmap: bool, tmp_path: Path, at_once: list[bool]
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write(TABLES[name], path)
    ds = ps.open(path, mmap=mmap)
    whole = pa.table(ds)
    order = np.random.default_rng(1).integers(0, len(ds), 300)
    for columns in (None, [whole.schema.names[0]], [whole.schema.names[-1]]):
        wanted = whole.select(columns or whole.schema.names).take(pa.array(order))
        found = ds.take(order, columns=columns)
        found.validate(full=True)
        assert found.schema == wanted.schema
        assert found.to_pydict() == wanted.to_pydict()
    assert at_once == [True] * 3


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ["small", "large"])
def test_every_damaged_record_is_reported_by_its_number(
    name: str, mmap: bool, tmp_path: Path, at_once: list[bool]
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write(TABLES[name], path)
    starts = [int(start) for start in ps.open(path).files.reader(0).index.starts]  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    others = [n for n in range(len(starts) - 1) if n != 57]
    for place in (starts[57] + 1, starts[57] + 9, starts[57] + 20, starts[58] - 1):
        data[place] ^= 4
        path.write_bytes(data)
        ds = ps.open(path, mmap=mmap)
        assert ds.take(others).num_rows == len(others)
        assert at_once.pop()
        with pytest.raises(ps.FormatError) as raised:
            ds.take([3, 57, 4])
        assert not at_once.pop()
        assert raised.value.record == 57
        data[place] ^= 4


def test_a_record_beyond_the_limit_or_a_wrong_value_is_reported_as_usual(
    tmp_path: Path, at_once: list[bool]
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"image": [b"1", b"2" * 5000, b"3"], "label": [1, 1 << 40, 3]}, path)
    ds = ps.open(path, limits=ps.Limits(record_bytes=1000))
    assert ds.take([0, 2]).num_rows == 2
    with pytest.raises(ps.LimitError) as raised:
        ds.take([0, 1])
    assert raised.value.record == 1
    ds = ps.open(path, schema=pa.schema({"image": pa.binary(), "label": pa.int32()}))
    assert ds.take([2, 0])["label"].to_pylist() == [3, 1]
    with pytest.raises(ps.SchemaError) as wrong:
        ds.take([2, 1])
    assert (wrong.value.record, wrong.value.field) == (1, "label")
    assert at_once == [True, False, True, False]


def test_a_file_truncated_since_it_was_opened_is_reported(
    tmp_path: Path, at_once: list[bool]
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write(LARGE, path)
    ds = ps.open(path)
    assert ds.take([5, 119]).num_rows == 2
    with path.open("r+b") as file:
        file.truncate(file.seek(0, 2) // 2)
    with pytest.raises((ps.ChangedError, ps.StaleIndexError)):
        ds.take(range(120))
    assert at_once == [True, False]


def test_compressed_files_go_the_longer_way(tmp_path: Path, at_once: list[bool]) -> None:
    path = tmp_path / "a.tfrecord.gz"
    ps.write(SMALL, path, compression="gzip")
    assert ps.open(path).take([9, 3])["number"].to_pylist() == [9, 3]
    assert at_once == [False]


def test_few_strings_of_large_records_hold_no_more_memory_than_they_need(
    tmp_path: Path, at_once: list[bool]
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"image": [RNG.bytes(100_000)] * 100, "label": [b"cat"] * 100}, path)
    ds = ps.open(path)
    before = pa.total_allocated_bytes()
    resident = memory_of_this_process()
    kept = [ds.take(range(100), columns=["label"]) for _ in range(20)]
    assert sum(batch.num_rows for batch in kept) == 2000
    assert at_once == [True] * 20
    assert pa.total_allocated_bytes() - before < 1 << 20
    # It would be 200 MB if each batch kept all memory that was read for it. The pool keeps some
    # buffers for the next batches.
    assert memory_of_this_process() - resident < 100 << 20


def memory_of_this_process() -> int:
    """Resident bytes of the process, without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


def test_a_limit_beyond_64_bits_is_no_limit(tmp_path: Path, at_once: list[bool]) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2, 3]}, path)
    limits = ps.Limits(record_bytes=(1 << 64) - 1)
    assert ps.open(path, limits=limits).take([1])["a"].to_pylist() == [2]
    assert at_once == [True]
