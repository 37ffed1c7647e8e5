"""`penstock info` lists files that it does not read, and prints warnings as plain lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import penstock as ps


def test_unread_files_are_listed_and_reported_in_one_warning(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    ps.write({"a": [1]}, tmp_path / "x" / "a.tfrecord")
    (tmp_path / "b\x1b[31m.part").touch()
    (tmp_path / "_SUCCESS").touch()
    command = [sys.executable, "-m", "penstock", "info", str(tmp_path)]
    plain = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "_SUCCESS" in plain.stdout
    assert "unfinished" in plain.stdout
    (line,) = plain.stderr.splitlines()
    assert line.startswith("warning: ")
    assert "\\x1b[31m.part (unfinished" in line
    document = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, check=True).stdout
    )
    assert [Path(one["path"]).name for one in document["skipped_files"]] == [
        "_SUCCESS",
        "b\x1b[31m.part",
    ]
    assert document["num_records"] == 1
