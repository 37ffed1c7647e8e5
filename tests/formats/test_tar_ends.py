"""An archive that is cut inside the zeros at its end has all of its members."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

import penstock as ps

END = 2 * 2 * 1024
"""Two records of two members, each a header and a block."""


def archive(path: Path) -> bytes:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key in ("0", "1"):
            for name, data in ((f"{key}.txt", b"some text"), (f"{key}.cls", key.encode())):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return path.read_bytes()


@pytest.mark.parametrize("zeros", [0, 1, 511, 512, 513, 1023, 1024, 1025, 1535, 1536, 3000, 6143])
def test_a_cut_inside_the_zeros_at_the_end_loses_no_record(tmp_path: Path, zeros: int) -> None:
    path, repaired = tmp_path / "a.tar", tmp_path / "b.tar"
    path.write_bytes(archive(path)[: END + zeros])
    assert ps.verify(path).ok == (zeros >= 1024)
    ps.repair(path, into=repaired)
    for index in ("never", "auto"):
        for file in (path, repaired):
            assert ps.open(file, index=index).to_table()["cls"].to_pylist() == [0, 1]
            assert ps.open(file, index=index)[1]["cls"] == 1
    assert ps.verify(repaired).ok
