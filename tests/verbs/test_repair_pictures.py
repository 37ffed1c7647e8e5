"""`repair(decode=True)` leaves out the records whose pictures cannot be decoded, and changes no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps

NUM = 12
BAD = (3, 9)
NAMES = ["a.tfrecord", "a.tfrecord.gz", "a.tar", "a.parquet", "a.arrow", "a.beton", "a.msgpack",
         "a.h5", "a.rec", "a.npz"]  # fmt: skip


def pictures(bad: tuple[int, ...] = BAD) -> list[bytes]:
    """Encoded pictures, of which some are cut."""
    pixels = np.random.default_rng(0).integers(0, 256, (NUM, 32, 32, 3), np.uint8)
    found = [image.as_py() for image in ps.encode_images(list(pixels), "jpeg").storage]
    for record in bad:
        found[record] = found[record][: len(found[record]) // 2]
    return found


def rows(path: Path) -> list[dict[str, Any]]:
    found = ps.open(path).to_table().to_pylist()
    if path.suffix != ".tar":
        return found
    # The comment with the types of a tar lies before its first record, and is lost with it.
    return [{"id": row["id"], "image": row.get("image", row.get("image.bin"))} for row in found]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [BAD, (0, NUM - 1), (4, 5, 6)])
def test_records_with_damaged_pictures_are_left_out_in_every_format(
    tmp_path: Path, name: str, bad: tuple[int, ...]
) -> None:
    path, whole = tmp_path / name, tmp_path / f"whole-{name}"
    other = {"label": np.arange(NUM).astype("f4")} if name == "a.rec" else {"id": range(NUM)}
    ps.write({**other, "image": pictures(bad)}, path)
    found = ps.verify(path, decode=True)
    assert ps.repair(path, into=whole).num_records == NUM
    report = ps.repair(path, into=whole, decode=True, overwrite=True)
    assert report.num_records == NUM - len(bad)
    assert [(f.kind, f.record) for f in report.findings] == [("picture", n) for n in bad]
    assert report.findings == found.findings
    assert rows(whole) == [row for n, row in enumerate(rows(path)) if n not in bad]
    assert ps.verify(whole, decode=True).ok


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tar", "a.parquet"])
def test_a_file_is_replaced_only_if_it_has_a_damaged_picture(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write({"id": range(NUM), "image": pictures(())}, path)
    before = path.stat()
    assert ps.repair(path, in_place=True, decode=True).ok
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    ps.write({"id": range(NUM), "image": pictures()}, path, overwrite=True)
    assert ps.repair(path, in_place=True, decode=True).num_records == NUM - len(BAD)
    assert [row["id"] for row in ps.open(path)] == [n for n in range(NUM) if n not in BAD]


def test_damaged_records_and_damaged_pictures_are_both_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    images = pictures()
    ps.write({"id": range(NUM), "image": images}, path, index=False)
    data = bytearray(path.read_bytes())
    data[data.index(images[5]) + 40] ^= 1
    path.write_bytes(data)
    report = ps.repair(path, into=tmp_path / "whole.tfrecord", decode=True)
    assert {(f.kind, f.record) for f in report.findings} == {
        ("data_checksum", 5), ("picture", 3), ("picture", 9)
    }  # fmt: skip
    kept = [row["id"] for row in ps.open(tmp_path / "whole.tfrecord")]
    assert kept == [n for n in range(NUM) if n not in (3, 5, 9)]


def test_pictures_need_payloads(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leave one out"):
        ps.repair(tmp_path / "a.tar", into=tmp_path / "b.tar", decode=True, payloads=False)


@pytest.mark.parametrize("count", [1, 6])
def test_findings_in_a_folder_have_the_bytes_of_the_record_s_own_file(
    tmp_path: Path, count: int
) -> None:
    files = pictures(bad=(3,))[:count]
    files[count // 2 - 1] = b""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, data in enumerate(files):
        (folder / f"{number}.jpg").write_bytes(data)
    found = ps.verify(folder, decode=True)
    report = ps.repair(folder, into=tmp_path / "out", decode=True)
    assert report.findings == found.findings
    bad = sorted({count // 2 - 1, 3} & set(range(count))) if count > 1 else [0]
    assert [
        (finding.file, finding.record, finding.start_byte, finding.end_byte)
        for finding in report.findings
    ] == [(f"{folder}/{n}.jpg", n, 0, len(files[n])) for n in bad]
