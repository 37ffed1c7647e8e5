"""Where the sidecar is stored if a file is in memory, or was opened by another program."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

import penstock as ps

SHM = Path("/dev/shm")


@pytest.mark.skipif(not os.access(SHM, os.W_OK), reason="a folder in memory is Linux's own")
def test_files_in_memory_keep_their_index_next_to_them() -> None:
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        path = Path(folder) / "a.tfrecord"
        ps.write({"n": [1, 2, 3]}, path, index=False)
        assert len(ps.open(path, index="beside")) == 3
        assert path.with_name(".a.tfrecord.penstock").exists()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no such names")
def test_a_file_known_only_by_a_descriptor_keeps_no_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"n": [1, 2, 3]}, path, index=False)
    with path.open("rb") as file:
        assert len(ps.open(f"/dev/fd/{file.fileno()}", format="tfrecord")) == 3
    assert [found.name for found in tmp_path.iterdir()] == ["a.tfrecord"]
