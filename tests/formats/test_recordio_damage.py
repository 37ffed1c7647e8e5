"""RecordIO files that are truncated, changed or hostile: what is read from them, with and without an index, and what
is repaired."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from recordio_files import JPEG, opened, pack_file, rows

import penstock as ps
from fuzz import mxnet_rules as rules
from penstock.storage import MemoryStorage
from reading import read_bytes, salvaged


def small_file() -> bytes:
    return pack_file(
        [1.0, [2.0, 3.0], 4.0], [JPEG + b"abc", JPEG + rules.MAGIC_BYTES * 2 + b"x", b""]
    )


@pytest.mark.parametrize("damage", ["error", "skip"])
def test_no_truncated_or_changed_file_gives_false_records(damage: str) -> None:
    data = small_file()
    for cut in range(len(data)):
        try:
            wanted, error = rules.records_of(data[:cut])[0], False
        except rules.Broken as broken:
            wanted, error = broken.args[0], True
        found = read_bytes(data[:cut], path="m.rec", damage=damage)
        assert found.records == wanted, cut
        assert (found.error is not None or bool(found.damage)) == error, cut
        if cut:
            assert salvaged(data[:cut], path="m.rec", format="recordio") == wanted, cut
    rng = random.Random(4)
    for bit in rng.sample(range(8 * len(data)), 400):
        flipped = bytearray(data)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        if not flipped.startswith(rules.MAGIC_BYTES):
            continue
        found = read_bytes(bytes(flipped), path="m.rec", damage=damage)
        try:
            assert found.records == rules.records_of(bytes(flipped))[0]
        except rules.Broken as broken:
            at = len(broken.args[0])
            assert found.records[:at] == broken.args[0]
            assert found.error is not None or found.damage
        for options in ({}, {"header": True, "label": "list"}):
            try:
                rows(opened(bytes(flipped), damage=damage, **options))
            except ps.PenstockError:
                pass


def test_an_index_finds_bit_rot_that_the_format_cannot(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    ps.write({"label": [1, 2, 3], "image": [JPEG + bytes(50)] * 3}, path)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    state = os.stat(path)
    path.write_bytes(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(ps.ChecksumError) as caught:
        rows(ps.open(str(path)))
    assert caught.value.record == 2
    assert len(rows(ps.open(str(path), index="never"))) == 3
    assert len(rows(ps.open(str(path), damage="skip"))) == 2


def test_verify_reports_and_repair_leaves_out_broken_records(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    payloads = [b"first", b"second" + rules.MAGIC_BYTES * 4, b"third record", b"fourth"]
    data = bytearray(rules.file_of(payloads))
    data[len(rules.file_of(payloads[:2]))] ^= 1
    path.write_bytes(data)
    assert len(ps.verify(str(path)).findings) == 1
    ps.repair(str(path), into=str(tmp_path / "b.rec"))
    assert rules.records_of((tmp_path / "b.rec").read_bytes())[0] == [
        payloads[0],
        payloads[1],
        payloads[3],
    ]


def hostile_files() -> dict[str, bytes]:
    """Files for which the time would grow with the square of their size, if penstock followed every possible frame to
    its end."""
    empty = rules.part(0, b"")
    count = 60_000
    heads = b"".join(
        (rules.MAGIC).to_bytes(4, "little") + (1 << 29 | 8 * (count - n - 1)).to_bytes(4, "little")
        for n in range(count)
    )
    middles = rules.part(2, b"") * count
    begun = rules.part(0, b"abcd") * 10 + bytes(8)
    return {
        "many parts": rules.part(1, b"") + middles + rules.part(3, b""),
        "many parts without an end": rules.part(1, b"") + middles,
        "records up to a cut": begun + empty * count + b"x",
        "chains that merge": begun + heads + middles,
        "chains that merge and end": begun + heads + middles + rules.part(3, b""),
    }


@pytest.mark.parametrize("name", hostile_files())
@pytest.mark.parametrize("damage", ["error", "skip"])
def test_hostile_files_are_read_in_time(name: str, damage: str) -> None:
    import time

    start = time.process_time()
    read_bytes(hostile_files()[name], path="m.rec", damage=damage)
    storage = MemoryStorage({"m.rec": hostile_files()[name]})
    ps.repair("m.rec", into="n.rec", format="recordio", salvage=True, storage=storage)
    assert time.process_time() - start < 5, "the tests' usual cost is a tenth of a second"
