"""A source that is read through a cache has the bytes of the source, whatever becomes of the cache's files."""

from __future__ import annotations

import os
import pickle
import random
import resource
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import _core
from penstock.storage._cache_files import BLOCK_BYTES, Block, BlockFiles, Kept
from penstock.storage._cached import CachedObjects, CachedSource
from penstock.storage._object_source import AHEAD
from penstock.storage.base import Source

MIB = 1 << 20
SIZE = 3 * BLOCK_BYTES + 300_001
BYTES = random.Random(0).randbytes(SIZE)
"""Four blocks, the last of them small."""


class Remote(Source):
    """Bytes somewhere else, which count how often they are asked for."""

    def __init__(self, data: bytes = BYTES, tag: str | None = "1", path: str = "s3://b/x") -> None:
        self.path, self.size = path, len(data)
        self._data, self._tag = data, tag
        self.asked: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> _core.Buffer:
        self.asked.append((start, length))
        return _core.Buffer.from_bytes(self._data[start : start + length])

    def state_name(self) -> str | None:
        return self._tag


def opened(cache: ps.Cache, source: Remote) -> tuple[CachedSource, CachedObjects]:
    objects = CachedObjects(cache)
    view = objects.view(source, source.path)
    assert isinstance(view, CachedSource)
    source.asked.clear()
    return view, objects


def filled(objects: CachedObjects) -> None:
    until = time.monotonic() + 20
    while objects.num_missing:
        assert time.monotonic() < until
        time.sleep(0.005)


def gathered(source: Source, ranges: list[tuple[int, int]]) -> bytes:
    starts, lengths = (pa.array(list(values), pa.uint64()) for values in zip(*ranges, strict=True))
    return source.gather(starts, lengths).to_bytes()


def files_of(cache: ps.Cache) -> list[Path]:
    return sorted(path for path in Path(cache.folder).iterdir() if path.name[0] != ".")


RANGE = st.tuples(
    st.integers(0, SIZE - 1), st.sampled_from([1, 4096, 70_000, 2 * MIB, 9 * MIB])
).map(lambda one: (one[0], min(one[1], SIZE - one[0])))
DAMAGE = st.tuples(
    st.sampled_from(["flip", "cut", "longer", "other", "gone"]), st.integers(0), st.integers(0)
)


def damage(cache: ps.Cache, what: str, which: int, where: int) -> None:
    """Change one of the cache's files."""
    if not (files := files_of(cache)):
        return
    path = files[which % len(files)]
    data = bytearray(path.read_bytes())
    at = where % (len(data) or 1)
    if what == "gone":
        path.unlink()
        return
    if what == "flip" and data:
        data[at] ^= 1 << where % 8
    elif what == "cut":
        del data[at:]
    elif what == "longer":
        data[at:at] = b"x"
    elif what == "other":
        data[:] = files[(which + 1) % len(files)].read_bytes()
    path.write_bytes(data)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.one_of(RANGE, st.lists(RANGE, min_size=1, max_size=5), DAMAGE), max_size=25))
def test_every_read_has_the_bytes_of_the_source(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    cache = ps.Cache(tmp_path_factory.mktemp("cache"), max_bytes=28 * MIB)
    view, objects = opened(cache, Remote())
    for step in steps:
        if isinstance(step, list):
            expected = b"".join(BYTES[start : start + length] for start, length in step)
            assert gathered(view, step) == expected
        elif isinstance(step[0], str):
            damage(cache, *step)
        else:
            start, length = step
            assert view.read(start, length).to_bytes() == BYTES[start : start + length]
    filled(objects)
    assert cache.usage().num_bytes <= 28 * MIB


@pytest.mark.parametrize("place", ["first", "last", "sums", "key", "end"])
def test_a_flipped_bit_is_noticed_and_its_block_is_fetched_again(
    place: str, tmp_path: Path
) -> None:
    cache, source = ps.Cache(tmp_path, max_bytes=64 * MIB), Remote()
    view, _ = opened(cache, source)
    view.read(0, SIZE)
    assert len(files_of(cache)) == 4
    source.asked.clear()
    assert view.read(0, SIZE).to_bytes() == BYTES
    assert not source.asked
    for path in files_of(cache):
        data = bytearray(path.read_bytes())
        size = min(BLOCK_BYTES, SIZE - int(path.suffix[1:]) * BLOCK_BYTES)
        at = {"first": 0, "last": size - 1, "sums": size, "key": len(data) - 30, "end": -1}[place]
        data[at] ^= 64
        path.write_bytes(data)
    assert view.read(0, SIZE).to_bytes() == BYTES
    assert sum(length for _, length in source.asked) == SIZE
    source.asked.clear()
    assert view.read(0, SIZE).to_bytes() == BYTES
    assert not source.asked


def flip_unnoticed(path: Path, at: int) -> None:
    """Change a byte as a broken disk does, which does not tell the time."""
    told, data = path.stat(), bytearray(path.read_bytes())
    data[at] ^= 64
    path.write_bytes(data)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))


def test_a_piece_is_compared_once_and_by_each_source_that_reads_it(tmp_path: Path) -> None:
    cache, source = ps.Cache(tmp_path), Remote()
    view, _ = opened(cache, source)
    view.read(0, SIZE)
    time.sleep(0.05)  # a write within a tick of the clock may leave the file's time as it is
    assert gathered(view, [(70_000, 10), (5, 10)]) == BYTES[70_000:70_010] + BYTES[5:15]
    path = next(path for path in files_of(cache) if path.suffix == ".0")
    flip_unnoticed(path, 70_001)
    source.asked.clear()
    assert view.read(70_000, 10).to_bytes() != BYTES[70_000:70_010]  # as from a local file
    assert not source.asked
    flip_unnoticed(path, 140_001)
    assert view.read(140_000, 10).to_bytes() == BYTES[140_000:140_010]
    assert source.asked and not path.exists()
    flipped = next(path for path in files_of(cache) if path.suffix == ".1")
    assert view.read(BLOCK_BYTES, 9 * MIB).to_bytes() == BYTES[BLOCK_BYTES:][: 9 * MIB]
    flip_unnoticed(flipped, 70_001)
    other, _ = opened(cache, Remote())
    assert other.read(BLOCK_BYTES, 9 * MIB).to_bytes() == BYTES[BLOCK_BYTES:][: 9 * MIB]


def test_a_block_that_was_removed_takes_no_room_while_a_source_is_open(tmp_path: Path) -> None:
    cache, source = ps.Cache(tmp_path), Remote()
    view, _ = opened(cache, source)
    view.read(0, SIZE)
    view.read(0, SIZE)
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    names = {path.name for path in files_of(cache)}
    assert names and not names & {os.path.basename(path) for path in held}


def test_the_use_of_a_block_is_noted_without_another_time_of_writing(tmp_path: Path) -> None:
    cache = ps.Cache(tmp_path)
    view, _ = opened(cache, Remote())
    view.read(0, SIZE)
    for path in files_of(cache):
        os.utime(path, (1, 1))
    view.read(BLOCK_BYTES, 10)
    used = {path.suffix: path.stat() for path in files_of(cache)}
    assert {told.st_mtime for told in used.values()} == {1}
    assert [name for name, told in used.items() if told.st_atime > 1] == [".1"]
    assert cache.usage().folders[0].used_ns > 10**18


def test_random_reads_request_what_they_need_and_the_blocks_follow(tmp_path: Path) -> None:
    source = Remote()
    view, objects = opened(ps.Cache(tmp_path), source)
    view.read(2 * BLOCK_BYTES + 5, 1000)
    assert source.asked == [(2 * BLOCK_BYTES + 5, 1000)]
    time.sleep(0.05)
    assert len(source.asked) == 1  # a few bytes, as opening needs them, fill nothing
    gathered(view, [(n * BLOCK_BYTES + 7 * MIB, 100_000) for n in range(3)])
    filled(objects)
    assert [one for one in source.asked if one[1] == BLOCK_BYTES] == [
        (n * BLOCK_BYTES, BLOCK_BYTES) for n in range(3)
    ]
    source.asked.clear()
    view.read(0, 3 * BLOCK_BYTES)
    assert not source.asked


def test_a_source_that_is_read_in_order_is_requested_once(tmp_path: Path) -> None:
    source = Remote()
    view, objects = opened(ps.Cache(tmp_path), source)
    view.read_in_order()
    for start in range(0, SIZE, 500_000):
        assert view.read(start, 500_000).to_bytes() == BYTES[start : start + 500_000]
    filled(objects)
    assert sum(length for _, length in source.asked) == SIZE
    assert len(source.asked) == 4


def test_threads_request_a_block_once(tmp_path: Path) -> None:
    source = Remote()
    view, _ = opened(ps.Cache(tmp_path), source)
    begin, found = threading.Barrier(8), list[bool]()

    def read() -> None:
        begin.wait()
        found.append(view.read(0, SIZE).to_bytes() == BYTES)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8
    assert sum(length for _, length in source.asked) == SIZE


def test_a_block_that_another_process_requests_is_waited_for_and_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.storage._whole_blocks._OTHERS_SECONDS", 0.2)
    cache, source = ps.Cache(tmp_path), Remote()
    view, _ = opened(cache, source)
    block = Block(view.key, 1, BLOCK_BYTES)

    def asked() -> list[int]:
        return [length for start, length in source.asked if start == BLOCK_BYTES]

    begun, done = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        files = BlockFiles(str(tmp_path), None)
        os.write(begun[1], b"1" if files.claim(block) else b"0")
        os.read(done[0], 1)
        files.write(block, _core.Buffer.from_bytes(BYTES[BLOCK_BYTES : 2 * BLOCK_BYTES]), 0)
        os.read(done[0], 1)
        os._exit(0)
    try:
        assert os.read(begun[0], 1) == b"1"
        expected = BYTES[BLOCK_BYTES : BLOCK_BYTES + 2 * MIB]
        assert view.read(BLOCK_BYTES, 2 * MIB).to_bytes() == expected
        assert asked() == [2 * MIB]  # it took too long: only what is needed
        os.write(done[1], b"1")
        monkeypatch.setattr("penstock.storage._whole_blocks._OTHERS_SECONDS", 20)
        assert view.read(BLOCK_BYTES, 2 * MIB).to_bytes() == expected
        assert asked() == [2 * MIB]
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    cache.clear()
    view.read(BLOCK_BYTES, 2 * MIB)  # a killed process claims nothing
    assert asked() == [2 * MIB, BLOCK_BYTES]


def test_another_tag_size_or_beginning_is_another_object(tmp_path: Path) -> None:
    cache = ps.Cache(tmp_path)
    opened(cache, Remote())[0].read(0, SIZE)
    other = random.Random(1).randbytes(SIZE)
    for source, data in (
        (Remote(other, "2"), other),
        (Remote(other[:-1]), other[:-1]),
        (Remote(other), other),  # the same tag, as of a download?id=2
        (Remote(other, path="s3://b/y"), other),
    ):
        assert opened(cache, source)[0].read(0, SIZE).to_bytes() == data
    assert cache.usage().num_blocks == 5 * 4


def test_an_object_without_a_tag_is_not_kept_and_a_note_says_so(tmp_path: Path) -> None:
    source = Remote(tag=None)
    objects = CachedObjects(ps.Cache(tmp_path / "c"))
    with pytest.warns(UserWarning, match="s3://b/x: the server sends no version"):
        view = objects.view(source, source.path)
    assert view is source
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objects.view(Remote(tag=None, path="s3://b/y"), "s3://b/y")  # once is enough
    view.read(0, SIZE)
    assert not (tmp_path / "c").exists()


def test_what_was_not_used_for_longest_is_removed_first(tmp_path: Path) -> None:
    cache = ps.Cache(tmp_path, max_bytes=40 * MIB)
    opened(cache, Remote(path="s3://b/old"))[0].read(0, SIZE)
    for path in files_of(cache):
        os.utime(path, (1, 1))
    one, two = Remote(path="s3://b/one"), Remote(path="s3://b/two")
    first, _ = opened(cache, one)
    first.read(0, SIZE)
    second, objects = opened(cache, two)
    time.sleep(0.02)
    assert {where.address for where in cache.usage().folders} == {"s3://b"}
    second.read(0, SIZE)
    one.asked.clear()
    assert first.read(0, SIZE).to_bytes() == BYTES
    assert two.asked and one.asked  # the newer set took the place of some of the other
    assert cache.usage().num_bytes <= 40 * MIB
    assert objects.counts.filled == 4


def test_a_set_larger_than_the_cache_keeps_what_is_there(tmp_path: Path) -> None:
    cache, source = ps.Cache(tmp_path, max_bytes=20 * MIB), Remote()
    view, _ = opened(cache, source)
    for _ in range(3):
        for start in range(0, SIZE, 2 * MIB):
            view.read(start, 2 * MIB)
    assert cache.usage().num_blocks == 2
    source.asked.clear()
    for start in range(0, SIZE, 2 * MIB):
        assert view.read(start, 2 * MIB).to_bytes() == BYTES[start : start + 2 * MIB]
    assert min(start for start, _ in source.asked) == 2 * BLOCK_BYTES


@contextmanager
def files_of_at_most(num_bytes: int) -> Generator[None]:
    """Let the system refuse to write longer files, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_refuses_a_block_is_named_and_reading_goes_on(tmp_path: Path) -> None:
    cache, source = ps.Cache(tmp_path, max_bytes=64 * MIB), Remote()
    view, _ = opened(cache, source)
    view.read(0, 2 * MIB)
    assert cache.usage().num_blocks == 1
    with files_of_at_most(5 * MIB):
        with pytest.warns(UserWarning, match=r"cannot be written \(File too large\)"):
            assert view.read(0, SIZE).to_bytes() == BYTES
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # once is enough
            assert view.read(MIB, SIZE).to_bytes() == BYTES[MIB:]
    assert {path.name for path in tmp_path.glob(".*")} == {".lock", ".claims"}
    source.asked.clear()
    view.read(0, BLOCK_BYTES)  # what was there is used
    assert not source.asked
    view.read(BLOCK_BYTES, 2 * MIB)  # and nothing more is requested than needed
    assert source.asked == [(BLOCK_BYTES, 2 * MIB)]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    view, _ = opened(ps.Cache(tmp_path / "file" / "cache"), Remote())
    with pytest.warns(UserWarning, match="cannot be written"):
        assert view.read(0, SIZE).to_bytes() == BYTES


def test_a_killed_writer_leaves_a_count_that_is_put_right(tmp_path: Path) -> None:
    files = BlockFiles(str(tmp_path), 20 * MIB)
    data = _core.Buffer.from_bytes(BYTES[:BLOCK_BYTES])

    def write(number: int) -> Kept:
        return files.write(Block(b"s3://b/x\0", number, BLOCK_BYTES), data, 0)

    assert write(0) is Kept.YES
    (tmp_path / ".lock").write_bytes((19 * MIB).to_bytes(8, "little"))  # it had counted others
    (tmp_path / ".block.tmp").write_bytes(b"some of it")
    assert (write(1), write(2)) == (Kept.YES, Kept.FULL)
    for broken in (b"", b"abc", b"x" * 20):
        (tmp_path / ".lock").write_bytes(broken)
        assert write(2) is Kept.FULL
    assert not (tmp_path / ".block.tmp").exists()


def test_a_stopped_process_with_the_lock_does_not_stop_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    monkeypatch.setattr("penstock.storage._cache_files._LOCK_SECONDS", 0.05)
    cache, source = ps.Cache(tmp_path), Remote()
    view, _ = opened(cache, source)
    with open(tmp_path / ".lock", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert view.read(0, SIZE).to_bytes() == BYTES
        assert cache.usage().num_blocks == 0
        with pytest.raises(TimeoutError, match="another process"):
            cache.clear()
    view.read(0, SIZE)
    assert cache.usage().num_blocks == 4


def test_a_cache_is_shown_cleared_and_pickled(tmp_path: Path) -> None:
    cache = ps.Cache(tmp_path, max_bytes=64 * MIB)
    opened(cache, Remote(path="s3://b/f/x"))[0].read(0, SIZE)
    opened(cache, Remote(BYTES[: 3 * MIB], path="https://me:pw@host/g/x?…"))[0].read(0, SIZE)
    (tmp_path / "notes.txt").write_text("not a block")
    usage = cache.usage()
    assert [(f.address, f.num_objects, f.num_blocks) for f in usage.folders] == [
        ("s3://b/f", 1, 4),
        ("https://host/g", 1, 1),
    ]
    assert usage.num_bytes == sum(path.stat().st_size for path in files_of(cache)[:5])
    assert all(
        path.stat().st_mode & 0o077 == 0 for path in files_of(cache) if path.suffix != ".txt"
    )
    again = pickle.loads(pickle.dumps(cache))
    assert (again.folder, again.max_bytes) == (str(tmp_path), 64 * MIB)
    assert again.clear() == usage.num_bytes
    assert cache.usage().num_blocks == 0
    assert (tmp_path / "notes.txt").exists()


def test_a_budget_must_hold_two_blocks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_bytes must be at least 16777216"):
        ps.Cache(tmp_path, max_bytes=1000)


def test_announced_blocks_are_requested_once_and_given_up_with_their_owner(tmp_path: Path) -> None:
    source = Remote()
    view, _ = opened(ps.Cache(tmp_path), source)
    before = AHEAD.used
    held = view.want([100, 2 * BLOCK_BYTES], [9 * MIB, 4 * MIB])
    assert held is not None and len(held) == 3
    assert AHEAD.used == before + 3 * BLOCK_BYTES
    other = BlockFiles(str(tmp_path), None)
    child = os.fork()
    if not child:  # no other process requests them
        os._exit(int(any(other.claim(view.blocks.block(number)) for number in range(3))))
    assert os.waitpid(child, 0)[1] == 0
    assert view.read(100, 9 * MIB).to_bytes() == BYTES[100 : 100 + 9 * MIB]
    assert [start for start, _ in source.asked] == [0, BLOCK_BYTES]
    del held
    assert AHEAD.used == before
    child = os.fork()
    if not child:
        os._exit(int(not other.claim(view.blocks.block(2))))
    assert os.waitpid(child, 0)[1] == 0
    view.read(2 * BLOCK_BYTES, 4 * MIB)
    assert view.want([100], [9 * MIB]) == []  # it is in the cache
    assert source.asked[2:] == [(2 * BLOCK_BYTES, BLOCK_BYTES)]
