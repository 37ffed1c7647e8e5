"""Several appends, readers and writers on one file, and appends that were interrupted."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from appending import NAMES, NEW, OLD, ids, in_parallel, names_in
from frames import frame
from penstock import _core
from penstock.storage import append_journal as journal
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls
from penstock.storage.source_views import FrontPart


@pytest.mark.parametrize("name", NAMES)
def test_simultaneous_appends_wait_for_each_other(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write({"id": range(10)}, path)
    parts = [range(100 * n, 100 * n + 100) for n in range(1, 9)]
    in_parallel([lambda part=part: ps.append({"id": part}, path) for part in parts])
    found = ids(path)
    assert found[:10] == list(range(10))
    appended = [found[at : at + 100] for at in range(10, 810, 100)]
    assert sorted(appended) == [list(part) for part in parts]
    assert ps.verify(path).ok
    assert len(ps.open(path)) == 810


def test_an_append_read_before_its_last_step_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(10)}, path)
    old = path.read_bytes()
    ps.append({"id": range(10, 20)}, path)
    new = path.read_bytes()
    read = _core.File(str(path)).read
    note = journal.Journal(
        len(old),
        len(new),
        journal.border_of(read, len(old)),
        new[len(old) :][: journal.EDGE_BYTES].hex(),
        journal.checksum(read, len(old), len(new)),
    )
    noted = Path(journal.path_for(str(path)))
    other = path.open("rb")
    fcntl.flock(other, fcntl.LOCK_EX)
    noted.write_bytes(note.to_bytes())  # all bytes are there, and the note is too

    def data() -> Iterator[pa.RecordBatch]:
        noted.unlink()
        other.close()
        yield pa.record_batch({"id": range(20, 25)})

    ps.append(data(), path, schema=pa.schema({"id": pa.int64()}))
    assert ids(path) == list(range(25))


def test_an_append_that_cannot_wait_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before = path.read_bytes()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another append"):
            ps.append(NEW, path, wait_seconds=0.05)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {"x.tfrecord", ".x.tfrecord.penstock"}


@pytest.mark.parametrize("index", ["auto", "never"])
@pytest.mark.parametrize("name", NAMES)
def test_readers_never_see_half_an_append(tmp_path: Path, name: str, index: str) -> None:
    path = tmp_path / name
    step = 200
    pad = [b"so that it takes a while" * 200] * step
    ps.write({"id": range(step), "pad": pad}, path)

    def appending() -> None:
        for first in range(step, 16 * step, step):
            ps.append({"id": range(first, first + step), "pad": pad}, path, level=1)

    seen = [step]

    deadline = time.monotonic() + 300

    def reading() -> None:
        while seen[-1] < 16 * step:
            assert time.monotonic() < deadline, "no append came to its end"
            ds = ps.open(path, index=index)
            found = [n for batch in ds.scan(["id"]) for n in batch["id"].to_pylist()]
            assert found == list(range(len(ds)))
            assert len(found) % step == 0
            assert len(found) >= seen[-1]
            seen.append(len(found))

    in_parallel([appending, reading])
    assert len(set(seen)) > 2


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("index", ["auto", "never"])
@pytest.mark.parametrize("name", NAMES)
def test_open_readers_keep_their_records(tmp_path: Path, name: str, index: str, mmap: bool) -> None:
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    ds = ps.open(path, index=index, mmap=mmap)
    scanning = ds.scan(["id"], threads=1)
    first = next(scanning)["id"].to_pylist()
    ps.append(NEW, path)
    assert first + [n for batch in scanning for n in batch["id"].to_pylist()] == list(range(1000))
    assert len(ds) == 1000
    assert ds.take([999, 0])["id"].to_pylist() == [999, 0]
    assert len(ps.open(path)) == 1300


# -- a note of an append that has not ended -----------------------------------------------------------


def torn(path: Path, written: int) -> tuple[bytes, bytes]:
    """Leave an append to a file as a kill would, with this many of its bytes written. Returns the old contents of the
    file, and the contents that it should have got."""
    before = path.read_bytes()
    ps.append(NEW, path, index=False)
    after = path.read_bytes()
    more = after[len(before) :]
    read = LocalStorage().source(str(path)).read
    note = journal.Journal(
        len(before),
        len(after),
        journal.border_of(read, len(before)),
        more[: journal.EDGE_BYTES].hex(),
        journal.checksum(read, len(before), len(after)),
    )
    Path(journal.path_for(str(path))).write_bytes(note.to_bytes())
    written = written % len(more) if written < len(more) else len(more)
    path.write_bytes(after[: len(before) + written])
    return before, after


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("written", [0, 1, 11, 12, 100, 1500, -8, -1])
def test_the_next_process_undoes_half_an_append(tmp_path: Path, name: str, written: int) -> None:
    path = tmp_path / name
    verbs = {
        "open": lambda: ids(path),
        "verify": lambda: ps.verify(path),
        "append": lambda: ps.append(NEW, path),
        "index": lambda: ps.index(path),
    }
    for verb, call in verbs.items():
        ps.write(OLD, path, overwrite=True)
        before, after = torn(path, written)
        call()
        assert path.read_bytes() == (after if verb == "append" else before), verb
        assert not os.path.exists(journal.path_for(str(path)))
        assert ps.verify(path).findings == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_next_reader_keeps_a_complete_append(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path)
    _, after = torn(path, 1 << 30)
    assert ids(path) == list(range(1300))
    assert path.read_bytes() == after
    assert not os.path.exists(journal.path_for(str(path)))


def test_while_an_append_is_under_way_readers_see_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    for written in (0, 50, 1 << 30):
        before, _ = torn(path, written)
        held = path.read_bytes()
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert isinstance(LocalStorage().source(str(path)), FrontPart)
            ds = ps.open(path)
            assert ids(path) == list(range(1000))
            assert len(ds) == 1000
            assert ds.take([999, 0])["id"].to_pylist() == [999, 0]
            assert ps.verify(path).findings == ()
            assert len(ps.open(path, index="never", mmap=True)) == 1000
        assert path.read_bytes() == held, "somebody else has the lock"
        path.write_bytes(before)
        os.unlink(journal.path_for(str(path)))


class MayNotWrite(Calls):
    """A storage whose files can be read but not written."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(path)
        return super().open(path, flags, mode)


@pytest.mark.parametrize(("written", "seen"), [(50, 1000), (1 << 30, 1300)])
def test_readers_without_write_permission_read_the_whole_records(
    tmp_path: Path, written: int, seen: int
) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    torn(path, written)
    held = path.read_bytes()
    ds = ps.open(path, storage=LocalStorage(MayNotWrite()))
    assert [n for batch in ds.scan(["id"]) for n in batch["id"].to_pylist()] == list(range(seen))
    assert path.read_bytes() == held
    assert os.path.exists(journal.path_for(str(path)))


def test_a_note_does_no_harm_to_a_file_that_it_is_not_about(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before, after = torn(path, 50)
    note = Path(journal.path_for(str(path)))
    stored = note.read_bytes()
    other = before + frame(b"somebody else's record")
    foreign = {
        "longer": after + frame(b"x"),
        "shorter": before[: len(before) // 2],
        "another tail": other,
        "another border": before[:-1] + bytes([before[-1] ^ 1]) + b"?",
        "another file": b"".join(frame(b"other %d" % n) for n in range(2000))[: len(before) + 60],
    }
    for what, data in foreign.items():
        path.write_bytes(data)
        note.write_bytes(stored)
        LocalStorage().source(str(path))
        assert path.read_bytes() == data, what
        assert not note.exists(), what


def test_an_append_that_lost_bytes_to_zeros_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before, _ = torn(path, 50)
    path.write_bytes(path.read_bytes() + bytes(100))
    assert ids(path) == list(range(1000))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "note",
    [b"", b"{}", b"[1]", b"\xff\xfe", b'{"old_size": -5}', b"9" * 100_000, b"[" * 60_000],
)
def test_a_note_may_be_anything(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before = path.read_bytes()
    Path(journal.path_for(str(path))).write_bytes(note)
    assert ids(path) == list(range(1000))
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {"x.tfrecord", ".x.tfrecord.penstock"}


def test_random_notes_never_cut_old_records(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before, _ = torn(path, 50)
    held = path.read_bytes()
    note = Path(journal.path_for(str(path)))
    stored = note.read_bytes()
    draw = np.random.default_rng(5)
    for _ in range(200):
        path.write_bytes(held)
        changed = bytearray(stored)
        changed[draw.integers(len(changed))] = draw.integers(256)
        note.write_bytes(changed)
        LocalStorage().source(str(path))
        assert path.read_bytes() in (before, held)


def test_a_file_that_others_write_to_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before = path.read_bytes()

    class Meddling(Calls):
        def fsync(self, fd: int) -> None:
            super().fsync(fd)
            if os.path.sameopenfile(fd, held.fileno()):
                os.write(held.fileno(), b"of somebody else")

    with path.open("ab") as held, pytest.raises(ps.ChangedError, match="another program"):
        ps.append(NEW, path, storage=LocalStorage(Meddling()))
    assert path.read_bytes().startswith(before)
    assert path.read_bytes().endswith(b"of somebody else")
    assert not os.path.exists(journal.path_for(str(path)))
