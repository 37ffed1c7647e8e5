"""Behind the index's back: files that changed after they were indexed.

Whatever happens, a record that is delivered is one that is in the file now, at that number.
"""

from __future__ import annotations

import gzip
import os
import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import frames
import penstock as ps
from penstock.framing.index import sidecar
from reading import index_of, records_of

pytestmark = pytest.mark.usefixtures("index_beside")

SEED = int(os.environ.get("PENSTOCK_SEED", "12"))
WRAPS = {"plain": bytes, "gzip": frames.gzip_of, "members": lambda data: frames.gzip_of(data, 5)}


def payloads(rng: random.Random, count: int | None = None) -> list[bytes]:
    count = rng.randrange(1, 40) if count is None else count
    return [rng.randbytes(rng.randrange(60)) for _ in range(count)]


def check_nothing_wrong(path: str, now: list[bytes], **options: object) -> str:
    """Read in every way. Each result must be what is in the file now, or an error. Returns the results."""
    try:
        dataset = ps.open(path, raw=True, **options)  # type: ignore[arg-type]
        assert records_of(dataset, threads=1) == now
        dataset = ps.open(path, raw=True, **options)  # type: ignore[arg-type]
        assert len(dataset) == len(now)
        order = random.Random(1).sample(range(len(now)), len(now))
        assert dataset.take(order).column(0).to_pylist() == [now[n] for n in order]
    except ps.StaleIndexError:
        return "stale"
    return "read"


def edit(rng: random.Random, old: list[bytes]) -> list[bytes]:
    """Another state of the file."""
    new = list(old)
    kind = rng.randrange(9)
    if kind == 0:
        new += payloads(rng)
    elif kind == 1 and new:
        new = new[: rng.randrange(len(new))]
    elif kind == 2 and new:
        at = rng.randrange(len(new))
        new[at] = rng.randbytes(len(new[at]))
    elif kind == 3:
        new = [rng.randbytes(len(payload)) for payload in new]
    elif kind == 4:
        rng.shuffle(new)
    elif kind == 5 and len(new) > 1:
        # The same size of the file, with other borders.
        new[0], new[1] = new[0] + new[1][:1], new[1][1:]
    elif kind == 6:
        new = payloads(rng)
    elif kind == 7 and new:
        new.insert(rng.randrange(len(new)), rng.randbytes(8))
    elif kind == 8 and len(new) > 1:
        del new[rng.randrange(len(new))]
    return new


@pytest.mark.parametrize("compression", list(WRAPS))
@pytest.mark.parametrize("keeps_time", [True, False])
def test_random_edits_after_indexing_deliver_nothing_wrong(
    compression: str, keeps_time: bool, tmp_path: Path
) -> None:
    """100 files a case; half of the edits keep the file's time stamps."""
    rng = random.Random(f"{SEED}{compression}{keeps_time}")
    wrap = WRAPS[compression]
    path = tmp_path / "a.tfrecord"
    for round_ in range(100):
        old = payloads(rng)
        path.write_bytes(wrap(frames.file_of(old)))
        assert len(ps.open(str(path), raw=True)) == len(old)
        assert index_of(tmp_path / "a.tfrecord").exists()
        before = path.stat()
        new = edit(rng, old)
        path.write_bytes(wrap(frames.file_of(new)))
        if keeps_time:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        said = check_nothing_wrong(str(path), new)
        if new == old:
            assert said == "read", "rewritten with the same bytes, nothing has changed"
        # After a refusal the next reader finds a fresh index or makes one.
        assert check_nothing_wrong(str(path), new) == "read", f"seed {SEED}, round {round_}"
        index_of(tmp_path / "a.tfrecord").unlink()


def test_swapped_shards_are_noticed(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    first, second = tmp_path / "1.tfrecord", tmp_path / "2.tfrecord"
    for _ in range(50):
        lengths = [rng.randrange(60) for _ in range(20)]
        one = [rng.randbytes(length) for length in lengths]
        two = [rng.randbytes(length) for length in lengths]
        first.write_bytes(frames.file_of(one))
        second.write_bytes(frames.file_of(two))
        for path in (first, second):
            len(ps.open(str(path), raw=True))
        first.write_bytes(frames.file_of(two))
        second.write_bytes(frames.file_of(one))
        check_nothing_wrong(str(first), two)
        check_nothing_wrong(str(second), one)
        for path in tmp_path.glob("*.penstock"):
            path.unlink()


def test_a_file_that_changes_under_an_open_dataset(tmp_path: Path) -> None:
    """Each record that comes is of one state or the other, as it was written, or an error does."""
    rng = random.Random(SEED)
    path = tmp_path / "a.tfrecord"
    for _ in range(100):
        old = payloads(rng, 30)
        path.write_bytes(frames.file_of(old))
        dataset = ps.open(str(path), raw=True, index=str(tmp_path / "indexes"))
        len(dataset)
        new = edit(rng, old)
        path.write_bytes(frames.file_of(new))
        for number in range(len(old)):
            try:
                got = dataset[number]["record"]
            except (ps.PenstockError, OSError):
                continue
            assert got == old[number], "the record that was indexed, or none"


@pytest.mark.parametrize("damage", ["error", "skip"])
@pytest.mark.parametrize("wrap", [*WRAPS, "zlib"])
def test_a_rewritten_file_is_not_called_damaged(wrap: str, damage: str, tmp_path: Path) -> None:
    """Nor are the new file's records returned as if they were the indexed records."""
    rng = random.Random(SEED)
    make = WRAPS.get(wrap, frames.zlib_of)
    path = tmp_path / "a.tfrecord"
    old, new = [[rng.randbytes(50) for _ in range(3_000)] for _ in range(2)]
    path.write_bytes(make(frames.file_of(old)))
    os.utime(path, (1, 1))
    dataset = ps.open(path, raw=True, index=tmp_path, damage=damage)
    assert dataset[7]["record"] == old[7]
    path.write_bytes(make(frames.file_of(new[:2_900])))
    found = (ps.ChangedError, ps.StaleIndexError)
    with pytest.raises(found):
        dataset[2_000]
    with pytest.raises(found):
        dataset.take([1, 2_000, 5])
    with pytest.raises(found):
        records_of(dataset)


@pytest.mark.parametrize("keep", [0, 1, 7, 20])
def test_a_file_that_shrinks_under_an_open_dataset(keep: int, tmp_path: Path) -> None:
    some = payloads(random.Random(keep), 50)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(some))
    dataset = ps.open(str(path), raw=True, index=str(tmp_path / "indexes"))
    len(dataset)
    end = frames.starts_of(some)[keep]
    os.truncate(path, end)
    for number in range(len(some)):
        if number < keep:
            assert dataset[number]["record"] == some[number]
        else:
            with pytest.raises((ps.PenstockError, OSError)):
                dataset[number]
    with pytest.raises((ps.PenstockError, OSError)):
        records_of(dataset)


# -- between the records of a sample --------------------------------------------------------------


def same_size_other_records(count: int = 3000) -> tuple[list[bytes], list[bytes]]:
    """Records, and the same with one of them as two, in a file of the same size."""
    old = [b"%060d" % number for number in range(count)]
    cut = old[count // 3]
    return old, [*old[: count // 3], cut[:10], cut[10:-16], *old[count // 3 + 1 :]]


def stored_members(data: bytes) -> bytes:
    pieces = [data[at : at + 50_000] for at in range(0, len(data), 50_000)]
    return b"".join(gzip.compress(piece, 0, mtime=0) for piece in pieces)


KEEPING_SIZES = {
    "plain": bytes,
    "gzip": lambda data: gzip.compress(data, 0, mtime=0),
    "members": stored_members,
    "zlib": lambda data: zlib.compress(data, 0),
}
"""Files as large as what is in them, however that is cut into records."""


@pytest.fixture(params=KEEPING_SIZES)
def wrap(request: pytest.FixtureRequest) -> Callable[[bytes], bytes]:
    return KEEPING_SIZES[request.param]


def test_a_record_that_became_two_at_the_same_size_is_noticed(
    wrap: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    old, new = same_size_other_records()
    path = tmp_path / "a.tfrecord"
    path.write_bytes(wrap(frames.file_of(old)))
    size = path.stat().st_size
    assert len(ps.open(str(path), raw=True)) == len(old)
    path.write_bytes(wrap(frames.file_of(new)))
    assert path.stat().st_size == size
    assert check_nothing_wrong(str(path), new) == "read"


def test_a_change_is_noticed_even_if_records_were_appended_too(
    wrap: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    old, new = same_size_other_records()
    path = tmp_path / "a.tfrecord"
    path.write_bytes(wrap(frames.file_of(old)))
    assert len(ps.open(str(path), raw=True)) == len(old)
    path.write_bytes(wrap(frames.file_of([*new, b"more"])))
    assert check_nothing_wrong(str(path), [*new, b"more"]) == "read"


def test_a_replaced_record_of_the_same_length_is_noticed(
    wrap: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """It is right in itself, so that only the index that knows another one can be wrong."""
    old, _ = same_size_other_records()
    path = tmp_path / "a.tfrecord"
    path.write_bytes(wrap(frames.file_of(old)))
    assert len(ps.open(str(path), raw=True)) == len(old)
    new = [*old[:1000], bytes(60), *old[1001:]]
    path.write_bytes(wrap(frames.file_of(new)))
    assert check_nothing_wrong(str(path), new) == "read"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_what_penstock_compressed_is_compared_as_well(compression: str, tmp_path: Path) -> None:
    """Two records change places in the middle, which keeps the size if nothing can be compressed."""
    rng = random.Random(SEED)
    old = [rng.randbytes(60) for _ in range(20_000)]
    new = [*old[:10_000], old[10_001], old[10_000], *old[10_002:]]
    path, other = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    ps.write({"record": old}, path, compression=compression)
    ps.write({"record": new}, other, compression=compression, index=False)
    assert path.stat().st_size == other.stat().st_size
    assert len(ps.open(path, raw=True)) == len(old)
    os.replace(other, path)
    assert check_nothing_wrong(str(path), new) == "read"


def test_of_a_damaged_file_the_index_is_kept(
    wrap: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    """The index shows how many records are lost."""
    some, _ = same_size_other_records()
    path = tmp_path / "a.tfrecord"
    path.write_bytes(wrap(frames.file_of(some)))
    assert len(ps.open(str(path), raw=True)) == len(some)
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at : at + 200] = bytes(200)
    path.write_bytes(data)
    dataset = ps.open(str(path), raw=True, damage="skip")
    left = records_of(dataset)
    lost = len(some) - len(left)
    assert 3 <= lost <= 800
    assert sum(region.num_records or 0 for region in dataset.damage) == lost
    assert left == [record for record in some if record in set(left)]


def test_other_framings_are_compared_as_well(tmp_path: Path) -> None:
    """MessagePack has no heads to go by, so a small file is read whole."""
    path = tmp_path / "a.msgpack"
    old = [b"\xc4\x03abc"] * 3000
    path.write_bytes(b"".join(old))
    assert len(ps.open(str(path), raw=True)) == 3000
    new = [*old[:1000], b"\x01", b"\xc4\x02ab", *old[1001:]]
    path.write_bytes(b"".join(new))
    assert check_nothing_wrong(str(path), new) == "read"


def test_an_untouched_file_is_recognised_without_reading_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = same_size_other_records()
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(old))
    beside = index_of(path)
    time.sleep(0.03)  # a file that was written just now may be written to in the same tick
    assert len(ps.open(str(path), raw=True)) == len(old)
    before = beside.stat().st_ino
    looks: list[object] = []
    walk = sidecar._core.index_file
    monkeypatch.setattr(
        sidecar._core, "index_file", lambda *asked: (looks.append(asked), walk(*asked))[1]
    )
    assert len(ps.open(str(path), raw=True)) == len(old)
    assert not looks
    os.utime(path)
    time.sleep(0.03)
    assert len(ps.open(str(path), raw=True)) == len(old)
    assert len(looks) == 1
    assert len(ps.open(str(path), raw=True)) == len(old)
    assert len(looks) == 1, "what was found out is kept"
    assert beside.stat().st_ino != before


def test_the_index_verb_makes_an_index_anew_that_is_of_another_state(tmp_path: Path) -> None:
    old, new = same_size_other_records()
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of(old))
    ps.index(str(path))
    path.write_bytes(frames.file_of(new))
    said = [finding.kind for finding in ps.verify(str(path)).findings]
    assert said == ["stale_index"]
    ps.index(str(path))
    assert ps.verify(str(path)).findings == ()
    assert len(ps.open(str(path), raw=True)) == len(new)


def relabelled(folder: Path, name: str) -> tuple[Path, list[dict[str, object]]]:
    """A file that was opened, then replaced by one of the same size, in which the label of one record is another."""
    rng = random.Random(SEED)
    labels = [1] * 300
    images = [rng.randbytes(2000) for _ in labels]
    path = folder / name

    def write(name: str) -> Path:
        columns = {"label": labels, "image": images}
        if name.endswith(".tar"):
            columns = {"__key__": [f"{n:04}" for n in range(300)], "cls": labels, "bin": images}
        ps.write(columns, folder / name, index=False)
        return folder / name

    write(name)
    time.sleep(0.03)
    assert len(ps.open(path)) == 300
    labels[100] = 2
    other = write(f"other-{name}")
    assert other.stat().st_size == path.stat().st_size
    os.replace(other, path)
    return path, [
        record for batch in ps.open(path, index="never").scan() for record in batch.to_pylist()
    ]


@pytest.mark.parametrize("name", ["a.tar", "a.rec", "a.msgpack"])
def test_what_was_written_anew_is_not_called_damaged(name: str, tmp_path: Path) -> None:
    """Only the file's times distinguish a changed record from a damaged record there."""
    path, now = relabelled(tmp_path, name)
    assert ps.verify(path).ok
    assert [r for batch in ps.open(path, damage="skip").scan() for r in batch.to_pylist()] == now
    assert [ps.open(path)[n] for n in (99, 100, 101)] == now[99:102]
    report = ps.repair(path, in_place=True)
    assert report.ok and report.num_records == 300


def test_a_reader_of_the_old_file_leaves_no_index_for_the_new_one(tmp_path: Path) -> None:
    old, new = same_size_other_records()
    path, other = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    path.write_bytes(frames.file_of(old))
    dataset = ps.open(path, raw=True)
    records_of(ps.open(path, raw=True, index="never"))
    dataset.files.reader(0)
    other.write_bytes(frames.file_of(new))
    os.replace(other, path)
    time.sleep(0.03)
    assert len(dataset) == len(old), "it reads on what it has opened"
    assert not index_of(path).exists()
    assert check_nothing_wrong(str(path), new) == "read"
    assert dataset[2000]["record"] == old[2000]
