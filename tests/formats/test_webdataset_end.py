"""Where a tar archive ends: verify reports what other programs would not read, and repair corrects it."""

from __future__ import annotations

import gzip
import subprocess
import tarfile
from pathlib import Path

import pytest
from tars import END, member

import penstock as ps

ONE, TWO, THREE = (member(f"{n}.txt", b"hello") + member(f"{n}.npy", bytes(2000)) for n in range(3))


def kinds(path: Path) -> list[str]:
    return [finding.kind for finding in ps.verify(str(path), index="never").findings]


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (ONE + TWO + END, []),
        (ONE + TWO + END * 7, []),
        (ONE + TWO, ["no_end"]),
        (ONE + TWO + END[:512], ["no_end"]),
        (ONE + END + TWO + END, ["early_end"]),
        (ONE + END[:512] + TWO + END + THREE, ["early_end", "early_end", "no_end"]),
        (END, []),
        (ONE + TWO + END + b"no header" * 100, ["framing"]),
        (ONE + TWO[:-700], ["truncated"]),
    ],
)
def test_verify_reports_a_missing_end_and_an_early_end(
    tmp_path: Path, data: bytes, wanted: list[str]
) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(data)
    assert kinds(path) == wanted
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(data))
    assert kinds(packed) == wanted


def test_an_early_end_is_found_between_the_windows_of_a_large_archive(tmp_path: Path) -> None:
    records = [member(f"{n}.bin", bytes(300_000)) for n in range(12)]
    path = tmp_path / "a.tar"
    for early in range(11):
        path.write_bytes(b"".join([*records[: early + 1], END, *records[early + 1 :], END]))
        (found,) = ps.verify(str(path), index="never").findings
        assert (found.kind, found.start_byte) == ("early_end", sum(map(len, records[: early + 1])))
        assert found.end_byte == found.start_byte + len(END)


def test_a_repaired_archive_has_one_end_that_others_come_to(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.tar", tmp_path / "whole.tar"
    path.write_bytes(ONE + END + TWO + END + THREE)
    report = ps.repair(str(path), into=str(whole))
    assert report.num_records == 3
    assert kinds(whole) == []
    with tarfile.open(whole) as tar:
        assert tar.getnames() == [f"{n}.{end}" for n in range(3) for end in ("txt", "npy")]
    assert [row["__key__"] for row in ps.open(str(whole))] == ["0", "1", "2"]
    assert ps.open(str(whole))[2]["txt"] == "hello"


def test_info_notes_an_archive_that_was_cut_after_a_member(tmp_path: Path) -> None:
    for size, end in enumerate([b"", END[:512], END, END * 10]):
        path = tmp_path / f"{size}.tar"
        path.write_bytes(ONE + member("1.txt", b"hello") + end)
        (shard,) = ps.info(path).shards
        assert bool(shard.notes) == (len(end) < len(END))
        assert bool(shard.notes) == ("no_end" in kinds(path))
    assert "has no end" in str(ps.info(tmp_path / "0.tar"))
    assert "has no end" not in str(ps.info(tmp_path / "2.tar"))


def test_archives_of_other_writers_have_an_end(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset")
    (tmp_path / "a.txt").write_bytes(b"hello")
    with tarfile.open(tmp_path / "py.tar", "w") as archive:
        archive.add(tmp_path / "a.txt", "a.txt")
    for name, flags in [("gnu", ["-b1"]), ("large", ["-b100"]), ("pax", ["--format=pax"])]:
        made = ["tar", "-cf", tmp_path / f"{name}.tar", *flags, "-C", tmp_path, "a.txt"]
        subprocess.run(made, check=True)
    with wds.ShardWriter(str(tmp_path / "wds-%d.tar"), maxcount=2, verbose=0) as sink:
        for n in range(5):
            sink.write({"__key__": str(n), "txt": "hello"})
    ps.write({"a.txt": ["hello"]}, tmp_path / "own.tar")
    paths = sorted(tmp_path.glob("*.tar"))
    assert len(paths) == 8
    for path in paths:
        assert kinds(path) == []
        assert ps.info(path).shards[0].notes == ()
