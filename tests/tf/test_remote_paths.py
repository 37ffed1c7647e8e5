"""Paths of unsupported file systems are errors, and are never treated as missing files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock.tf as tf


@pytest.mark.parametrize("path", ["gs://bucket/x*", b"s3://bucket/x", "hdfs://host/x", "ram://x"])
def test_other_file_systems_are_refused_by_every_function(path: Any, tmp_path: Path) -> None:
    gfile = tf.io.gfile
    names = set(gfile.__all__) - {
        "GFile",
        "copy",
        "get_registered_schemes",
        "join",
        "rename",
        "walk",
    }
    calls: list[Callable[[], Any]] = [partial(getattr(gfile, name), path) for name in sorted(names)]
    calls += [
        lambda: list(gfile.walk(path)),
        lambda: gfile.copy(path, tmp_path / "a"),
        lambda: gfile.rename(tmp_path / "a", path),
        lambda: gfile.GFile(path),
        lambda: gfile.glob([str(tmp_path), path]),
        lambda: tf.io.read_file(path),
        lambda: tf.io.write_file(path, b""),
        lambda: tf.io.matching_files(path),
    ]
    for call in calls:
        with pytest.raises(tf.errors.UnimplementedError, match="File system scheme"):
            call()
    assert not list(tmp_path.iterdir())


def test_paths_that_say_that_they_are_local_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    assert tf.io.gfile.glob(f"file://{tmp_path}/*.txt") == [f"{tmp_path}/a.txt"]
    assert tf.io.gfile.GFile(f"file://{tmp_path}/a.txt").read() == "one"
