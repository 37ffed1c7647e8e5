"""Scanning takes bounded memory, whatever the size of the file."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

import frames
from reading import run_python

MIB = 1 << 20
FILE_MIB = 600

SCAN = """
import resource, sys
import penstock as ps
import numpy, pyarrow
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = rss()
dataset = ps.open(sys.argv[1], raw=sys.argv[3] == "raw", index=sys.argv[2])
records = sum(batch.num_rows for batch in dataset.scan(threads=int(sys.argv[4])))
scanned = rss() - before
assert len(dataset) == records, (len(dataset), records)
again = sum(batch.num_rows for batch in dataset.scan(threads=int(sys.argv[4])))
assert again == records
indexed = rss() - before
print(records, round(scanned), round(indexed))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain and a gzip file of Examples, 600 MiB each, a quarter of it random."""
    folder = tmp_path_factory.mktemp("large")
    examples = []
    for number in range(64):
        blob = os.urandom(4096) + bytes(12_000)
        examples.append(frames.frame(frames.example({"id": [number], "blob": [blob]})))
    piece = b"".join(examples)
    copies = FILE_MIB * MIB // len(piece)
    with open(folder / "a.tfrecord", "wb") as file:
        file.writelines(piece for _ in range(copies))
    member = gzip.compress(piece * 8, 1, mtime=0)
    with open(folder / "members.tfrecord.gz", "wb") as file:
        file.writelines(member for _ in range(copies // 8))
    with gzip.open(folder / "one.tfrecord.gz", "wb", 1) as file:
        for _ in range(copies // 4):
            file.write(piece)
    return folder


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("a.tfrecord", "raw"),
        ("a.tfrecord", "columns"),
        ("members.tfrecord.gz", "columns"),
        ("one.tfrecord.gz", "raw"),
    ],
)
def test_scanning_grows_by_less_than_300_mib(name: str, payload: str, folder: Path) -> None:
    arguments = (str(folder / name), str(folder / f"indexes-{payload}"), payload, "4")
    said = run_python(SCAN, *arguments, seconds=240)
    _, scanned, indexed = (int(word) for word in said.split())
    assert scanned < 300, f"{scanned} MiB"
    assert indexed < 300, f"{indexed} MiB, with an index"
