"""`--limit` raises the limits for a file, and hints name this option."""

from __future__ import annotations

import shlex
from pathlib import Path

from running import run

import penstock as ps


def test_the_hint_of_a_long_record_is_an_option_that_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": [1, 2], "b": [b"", b"x" * 5000]}, path, index=False)
    failed = run("head", path, "--index", "never", "--limit", "record_bytes=2KiB")
    assert failed.status == 1
    hint = failed.err.partition("try: ")[2].strip()
    assert hint.startswith("--limit record_bytes=50")
    again = run("head", path, "--index", "never", *shlex.split(hint))
    assert again.status == 0
    assert run("stats", path, *shlex.split(hint)).status == 0
    assert run("verify", path, "--limit", "record_bytes=2k").status == 1
    assert run("verify", path, "--limit", "record_bytes=2k", *shlex.split(hint)).status == 0
    target = tmp_path / "b.parquet"
    assert run("convert", path, target, "--limit", "record_bytes=2k").status == 1
    assert run("convert", path, target, "--limit", "record_bytes=1MiB").status == 0


def test_limits_that_are_typed_wrong_are_misuse(tmp_path: Path) -> None:
    ps.write({"id": [1]}, tmp_path / "a.tfrecord")
    for wrong in ("records=5", "record_bytes", "record_bytes=much", "record_bytes=-1"):
        done = run("head", tmp_path / "a.tfrecord", "--limit", wrong)
        assert done.status == 2
        assert "--limit" in done.err
