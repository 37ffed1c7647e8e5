"""A value stored next to a shard belongs to one record. Whatever happens to the shard, reading gives that record with
its value, or an error."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import frames
import penstock as ps
from penstock.verbs.fields.overlays import write_overlay
from reading import index_of

pytestmark = pytest.mark.usefixtures("index_beside")

SEED = int(os.environ.get("PENSTOCK_SEED", "4"))
WRAPS = {
    "plain": bytes,
    "gzip": frames.gzip_of,
    "members": lambda data: frames.gzip_of(data, 5),
    "zlib": frames.zlib_of,
}
wraps = pytest.mark.parametrize("wrap", WRAPS)
damages = pytest.mark.parametrize("damage", ["error", "stop", "skip"])


def payload(number: int, size: int = 12) -> bytes:
    """A record that contains its number, after as many other bytes as requested."""
    return bytes([number % 251]) * size + number.to_bytes(4, "little")


def number_of(record: bytes) -> int:
    return int.from_bytes(record[-4:], "little")


def keep_squares(path: str, numbers: Iterable[int], **options: object) -> None:
    """Write an overlay with the square of the number in each record."""
    squares = pa.record_batch({"square": pa.array([n * n for n in numbers], pa.int64())})
    dataset = ps.open(path, overlays=False, **options)  # type: ignore[arg-type]
    write_overlay(dataset, "square", squares.schema, lambda shard: [squares], overwrite=True)


RECORD = pa.schema([("record", pa.binary()), ("square", pa.int64())])


def check(path: str, **options: object) -> list[int]:
    """Read in every way, and check that every delivered record has its value. Returns the numbers of the scanned
    records."""
    scanned: list[int] = []
    dataset = ps.open(path, schema=RECORD, **options)  # type: ignore[arg-type]
    for batch in dataset.scan(threads=1):
        for record, square in zip(
            *(batch.column(n).to_pylist() for n in RECORD.names), strict=True
        ):
            assert square == number_of(record) ** 2
            scanned.append(number_of(record))
    only = ps.open(path, schema=RECORD, **options)  # type: ignore[arg-type]
    squares = [s for batch in only.scan(["square"], threads=1) for s in batch[0].to_pylist()]
    if options.get("damage") == "skip":
        assert squares == [number**2 for number in scanned]
    count = len(dataset)
    order = random.Random(1).sample(range(count), min(count, 20))
    try:
        taken = dataset.take(order)
    except ps.FormatError:
        if options.get("damage") == "skip":
            return scanned  # a caller that requests a number needs exactly that record
        raise
    for record, square in zip(*(taken.column(n).to_pylist() for n in RECORD.names), strict=True):
        assert square == number_of(record) ** 2
    return scanned


def written(folder: Path, wrap: str, numbers: list[int]) -> str:
    path = folder / "a.tfrecord"
    path.write_bytes(WRAPS[wrap](frames.file_of(payload(n, n % 40) for n in numbers)))
    return str(path)


def forget_index(path: str) -> None:
    index_of(path).unlink(missing_ok=True)


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "index lost"])
@damages
@wraps
def test_skipped_records_take_their_values_with_them(
    wrap: str, damage: str, indexed: bool, tmp_path: Path
) -> None:
    numbers = list(range(40))
    path = written(tmp_path, wrap, numbers)
    keep_squares(path, numbers)
    assert check(path) == numbers
    whole, index = Path(path).read_bytes(), index_of(path).read_bytes()
    rng = random.Random(f"{SEED} {wrap} {damage} {indexed}")
    delivered = refused = 0
    for _ in range(25):
        broken = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        Path(path).write_bytes(broken)
        index_of(path).write_bytes(index)
        if not indexed:
            forget_index(path)
        try:
            found = check(path, damage=damage)
            assert found == sorted(set(found))
            delivered += 0 < len(found) < len(numbers)
        except ps.PenstockError:
            refused += 1
    if damage == "skip" and indexed and wrap in ("plain", "members"):
        assert delivered
    elif damage == "error":
        assert refused


@pytest.mark.parametrize("reading", ["indexed", "index lost", "never"])
@wraps
def test_a_shard_that_changed_is_refused(wrap: str, reading: str, tmp_path: Path) -> None:
    numbers = list(range(30))
    path = written(tmp_path, wrap, numbers)
    keep_squares(path, numbers)
    before = os.stat(path)
    rng = random.Random(f"{SEED} {wrap}")
    shuffled = rng.sample(numbers, len(numbers))
    edits = {
        "appended": [*numbers, 30],
        "cut": numbers[:-1],
        "empty": [],
        "replaced": list(range(100, 130)),
        "in another order": shuffled,
        "one record replaced": [*numbers[:7], 47, *numbers[8:]],  # the new record has the same size
        "two records swapped": [40, *numbers[1:]],
        "one more in front": [0, *numbers],
    }
    index = index_of(path).read_bytes()
    for name, edited in edits.items():
        written(tmp_path, wrap, edited)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        index_of(path).write_bytes(index)
        options = {"index": "never"} if reading == "never" else {}
        if reading == "index lost":
            forget_index(path)
        with pytest.raises(ps.StaleIndexError) as raised:
            check(path, **options)
        if reading != "indexed":
            # With an index, a change in place may be found only when it is read.
            assert "'square'" in str(raised.value), name
            assert path in str(raised.value)
            assert "penstock fields remove" in str(raised.value)
        with pytest.raises(ps.StaleIndexError):
            check(path, **options)
        assert [number_of(r) for r in _records(path)] == edited
    written(tmp_path, wrap, numbers)
    assert check(path) == numbers, "the old state has its overlay again"


def _records(path: str) -> list[bytes]:
    dataset = ps.open(path, raw=True, index="never")
    return [record for batch in dataset.scan() for record in batch.column(0).to_pylist()]


def test_random_edits_never_give_a_value_to_another_record(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    delivered = refused = 0
    for _ in range(60):
        wrap = rng.choice(list(WRAPS))
        numbers = list(range(rng.randrange(1, 30)))
        path = written(tmp_path, wrap, numbers)
        if rng.random() < 0.5:
            forget_index(path)
        keep_squares(path, numbers)
        edited = list(numbers)
        for _ in range(rng.randrange(3)):
            kind, at = rng.randrange(4), rng.randrange(len(edited) + 1)
            if kind == 0:
                edited.insert(at, rng.randrange(200))
            elif kind == 1:
                del edited[at:][:1]
            elif kind == 2 and at < len(edited):
                edited[at] += 40
            else:
                rng.shuffle(edited)
        written(tmp_path, wrap, edited)
        for damage in ("error", "skip"):
            try:
                assert check(path, damage=damage) == edited
                delivered += 1
                assert edited == numbers
            except ps.StaleIndexError:
                refused += 1
    assert delivered
    assert refused


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_an_indexed_file_that_changed_is_refused(kind: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"a.{kind}")

    def write(numbers: list[int]) -> None:
        records = [payload(number) for number in numbers]
        ps.write({"record": records}, path, overwrite=True)

    numbers = list(range(2000))
    for edited in (
        numbers[:-1],
        [*numbers, 2000],
        numbers[::-1],
        [*numbers[:900], 5, *numbers[901:]],
    ):
        write(numbers)
        keep_squares(path, numbers)
        assert check(path) == numbers
        before = os.stat(path)
        write(edited)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        for damage in ("error", "skip", "stop"):
            with pytest.raises(ps.StaleIndexError, match="another state"):
                check(path, damage=damage)
        report = ps.verify(path)
        assert [finding.kind for finding in report.findings] == ["stale_overlay"]
        write(numbers)
        assert check(path) == numbers


def test_a_large_file_is_recognised_by_a_sample_of_its_bytes(tmp_path: Path) -> None:
    path = str(tmp_path / "a.arrow")
    rng = np.random.default_rng(SEED)
    values = rng.integers(0, 256, (3000, 1000), dtype=np.uint8)

    def write(rows: np.ndarray) -> None:
        ps.write({"record": [row.tobytes() for row in rows]}, path, overwrite=True)

    write(values)
    keep_squares(path, range(3000))
    assert len(ps.open(path)) == 3000
    size = os.path.getsize(path)
    for edited in (values[::-1], np.roll(values, 1, axis=0), rng.permutation(values)):
        write(edited)
        assert os.path.getsize(path) == size > 1 << 20
        with pytest.raises(ps.StaleIndexError):
            ps.open(path)


def test_a_skipped_batch_shifts_no_values(tmp_path: Path) -> None:
    """One batch of an Arrow file has a broken head, so the records after it get different numbers."""
    path = str(tmp_path / "a.arrow")
    numbers = list(range(1000))
    ps.write({"record": [payload(number, 5000) for number in numbers]}, path, batch_records=100)
    keep_squares(path, numbers)
    whole = Path(path).read_bytes()
    broken = bytearray(whole)
    chunks = list(ps.open(path).files.reader(0).chunks())
    assert len(chunks) == 10
    at = chunks[3].start_byte
    broken[at : at + 64] = bytes(64)
    Path(path).write_bytes(broken)
    count = sum(b.num_rows for b in ps.open(path, damage="skip", overlays=False).scan())
    assert count == 900, "the other batches are still found"
    for damage in ("skip", "stop"):
        with pytest.raises(ps.StaleIndexError):
            check(path, damage=damage)


def test_a_shard_replaced_while_it_is_open_gives_no_foreign_values(tmp_path: Path) -> None:
    numbers = list(range(50))
    path = written(tmp_path, "plain", numbers)
    keep_squares(path, numbers)
    dataset = ps.open(path, schema=RECORD)
    wanted = [(payload(n, n % 40), n * n) for n in numbers]
    Path(path).rename(tmp_path / "old")
    written(tmp_path, "plain", list(range(100, 150)))
    got = dataset.take([3, 2]).to_pylist()
    assert [(row["record"], row["square"]) for row in got] == [wanted[3], wanted[2]]
    with pytest.raises(ps.StaleIndexError):
        check(path)
