"""The error of a disk that is full names the file that was written."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from storage_double import FailingCalls

import penstock as ps
from penstock.storage.local import LocalStorage

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
from penstock.cli.program import program
from click.testing import CliRunner
import json
for words in json.loads(sys.argv[1]):
    ran = CliRunner().invoke(program, words, catch_exceptions=False)
    print(json.dumps([ran.exit_code, ran.stderr]))
"""
TARGETS = ("o.parquet", "o.tfrecord", "o.tfrecord.gz", "o.arrow", "o.npz", "o.tar", "o.msgpack")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "big.tfrecord"
    numbers = np.random.default_rng(0).integers(0, 2**62, (8000, 2))
    ps.write({"x": numbers[:, 0], "y": numbers[:, 1]}, path)
    return path


def limited(lines: list[list[str]], folder: Path) -> list[tuple[int, str]]:
    """Run command lines in a process that may write no file above 60 kB."""
    command = [sys.executable, "-c", LIMITED, json.dumps(lines)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def test_each_command_names_the_file(source: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.tfrecord"
    ps.write({"x": [1], "y": [2]}, small)
    lines = {target: ["convert", str(source), target] for target in TARGETS}
    lines["sorted.arrow"] = ["sort", str(source), "--by", "x", "--into", "sorted.arrow"]
    lines["saved.tfrecord"] = ["repair", str(source), "--into", "saved.tfrecord"]
    lines["small.tfrecord"] = ["append", str(source), "small.tfrecord"]
    lines["two-00000-of-00002.arrow"] = ["convert", str(source), "two.arrow", "--num-shards", "2"]
    before, data = sorted(tmp_path.iterdir()), small.read_bytes()
    for name, (status, said) in zip(lines, limited(list(lines.values()), tmp_path), strict=True):
        assert (status, said.removeprefix("./")) == (1, f"{name}: {os.strerror(errno.EFBIG)}\n")
    assert (sorted(tmp_path.iterdir()), small.read_bytes()) == (before, data)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_the_error_has_the_name_of_the_file(tmp_path: Path, number: int) -> None:
    path = tmp_path / "x.arrow"
    with pytest.raises(OSError, match=r"x\.arrow") as caught:
        storage = LocalStorage(FailingCalls(1, number))
        ps.write({"id": range(100)}, path, storage=storage, index=False)
    assert (caught.value.errno, caught.value.filename) == (number, str(path))
