"""Disk space that a sink reserves in advance while it writes a large file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock import _core
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls

MIB = 1 << 20
PIECE = bytes(range(256)) * (MIB // 256)


class Reserving(Calls):
    """The real calls, except that `reserve` does as instructed; `seen` has the calls that reserve or free space."""

    def __init__(self, answers: list[bool]) -> None:
        self._answers = answers
        self.written = 0
        self.seen: list[tuple[str, int, int]] = []

    def write(self, fd: int, parts: list[memoryview]) -> int:
        done = super().write(fd, parts)
        self.written += done
        return done

    def reserve(self, fd: int, start: int, length: int) -> bool:
        self.seen.append(("reserve", start, length))
        assert start >= self.written
        assert start + length <= 2 * self.written
        return self._answers.pop(0)

    def truncate(self, fd: int, size: int) -> None:
        self.seen.append(("truncate", size, 0))
        super().truncate(fd, size)

    def fsync(self, fd: int) -> None:
        self.seen.append(("fsync", 0, 0))
        super().fsync(fd)


def written(path: Path, num_pieces: int, calls: Calls, tail: bytes = b"end") -> None:
    sink = LocalStorage(calls).sink(str(path))
    for _ in range(num_pieces):
        sink.write(PIECE)
    sink.write(tail)
    sink.commit()


def test_nothing_is_kept_after_the_end_of_a_file(tmp_path: Path) -> None:
    # From 32 MiB on, space up to 64 MiB is reserved, if the system can reserve any.
    written(tmp_path / "large", 40, Calls())
    told = os.stat(tmp_path / "large")
    assert told.st_size == 40 * MIB + 3
    assert told.st_blocks * 512 <= told.st_size + 64 * 1024
    assert (tmp_path / "large").read_bytes() == PIECE * 40 + b"end"
    assert os.listdir(tmp_path) == ["large"]


def test_as_much_as_was_written_is_reserved_and_at_most_64_mib(tmp_path: Path) -> None:
    calls = Reserving([True] * 20)
    written(tmp_path / "large", 200, calls)
    room = [
        (start // MIB, length // MIB) for name, start, length in calls.seen if name == "reserve"
    ]
    assert room == [(4, 4), (8, 8), (16, 16), (32, 32), (64, 64), (128, 64), (192, 64)]
    after = [name for name, _, _ in calls.seen if name != "reserve"]
    assert after == ["truncate", "fsync", "fsync"]
    assert (tmp_path / "large").read_bytes() == PIECE * 200 + b"end"


@pytest.mark.parametrize(
    ("answers", "num_pieces", "truncates"),
    [([False], 40, 0), ([False], 6, 1), ([True, False], 40, 0), ([True, False], 13, 1)],
)
def test_if_space_cannot_be_reserved_it_is_not_requested_again(
    tmp_path: Path, answers: list[bool], num_pieces: int, truncates: int
) -> None:
    calls = Reserving(list(answers))
    written(tmp_path / "large", num_pieces, calls)
    names = [name for name, _, _ in calls.seen]
    assert names.count("reserve") == len(answers)
    assert names.count("truncate") == truncates
    assert (tmp_path / "large").read_bytes() == PIECE * num_pieces + b"end"


def test_small_files_have_no_room_reserved(tmp_path: Path) -> None:
    calls = Reserving([])
    written(tmp_path / "small", 3, calls)
    assert [name for name, _, _ in calls.seen] == ["fsync", "fsync"]


def test_only_a_small_part_of_the_free_space_is_reserved(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb") as file:
        told = os.statvfs(tmp_path)
        free = told.f_bavail * told.f_frsize
        assert not _core.reserve(file.fileno(), 0, free // 8)
        assert not _core.reserve(file.fileno(), 0, 1 << 62)
        assert os.fstat(file.fileno()).st_blocks == 0
        closed = os.dup(file.fileno())
        os.close(closed)
        assert not _core.reserve(closed, 0, MIB)
    assert os.path.getsize(tmp_path / "file") == 0
