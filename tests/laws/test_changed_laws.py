"""A file that is changed while it is open gives the records that it had, or an error, but never a mixture of old and
new."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from held import WRITABLE, table_of

import penstock as ps
from penstock.contract.format import Format
from penstock.formats import FORMATS
from penstock.verbs.write.write import write

per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)
READ_ONLY = [fmt.info.name for fmt in FORMATS if fmt not in WRITABLE]


def largest(path: str) -> Path:
    """The file of a shard, or the largest file in its folder."""
    root = Path(path)
    files = [root] if root.is_file() else [one for one in root.rglob("*") if one.is_file()]
    return max(files, key=lambda one: one.stat().st_size)


def cut_and_grown(file: Path) -> None:
    size = file.stat().st_size
    os.truncate(file, size // 10)
    os.truncate(file, size)


def overwritten(file: Path) -> None:
    size = file.stat().st_size
    with file.open("r+b") as out:
        out.seek(size // 10)
        out.write(b"\x5a" * (size - size // 10))


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 10)


@per_format
@pytest.mark.parametrize("change", [cut_and_grown, overwritten, cut])
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("index", ["never", "beside"])
def test_no_change_gives_other_records(
    fmt: Format, change: Callable[[Path], None], mmap: bool, index: str, tmp_path: Path
) -> None:
    table = table_of(fmt).slice(0, 400)
    path = str(tmp_path / "a") + fmt.info.extensions[0]
    path = write(table, path, format=fmt.info.name, index=index == "beside").paths[0]
    numbers = [350, 11, 222]
    for read in (
        lambda dataset: [dataset.take(numbers)],
        lambda dataset: list(dataset.scan(threads=1)),
        lambda dataset: list(dataset.scan()),
    ):
        file = largest(path)
        right = file.read_bytes()
        kept = "never" if index == "never" else str(tmp_path / "indexes")
        dataset = ps.open(path, mmap=mmap, index=kept)
        dataset.take([5])
        wanted = [rows(batch) for batch in read(dataset)]
        change(file)
        try:
            found = [rows(batch) for batch in read(dataset)]
        except (ps.ChangedError, ps.FormatError, ps.StaleIndexError):
            pass
        else:
            assert found == wanted
        file.write_bytes(right)


def rows(batch: Any) -> Any:
    return batch.to_pylist()


def test_reading_records_with_checksums_continues_if_a_file_is_touched_or_grows(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write({"id": list(range(1000))}, path)
    dataset = ps.open(path)
    assert len(dataset) == 1000
    os.utime(path)
    assert sum(batch.num_rows for batch in dataset.scan()) == 1000
    ps.append({"id": [1000]}, path)
    assert dataset.take([999])["id"].to_pylist() == [999]


def test_reading_other_records_ends_if_a_file_is_touched(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    ps.write({"data": list(range(1000))}, path)
    dataset = ps.open(path)
    os.utime(path)
    for read in (lambda: dataset[3], lambda: list(dataset.scan())):
        with pytest.raises(ps.ChangedError, match="changed while it was open"):
            read()


def test_reading_continues_in_a_file_that_was_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npy")
    ps.write({"data": list(range(1000))}, path)
    dataset = ps.open(path)
    ps.write({"data": [7] * 1000}, path, overwrite=True)
    assert dataset[3]["data"] == 3
    assert ps.open(path)[3]["data"] == 7
