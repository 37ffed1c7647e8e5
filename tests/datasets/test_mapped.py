"""Files that are borrowed from a memory map, over several epochs."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

import frames
import penstock as ps
from reading import records_of, run_python

PAYLOADS = [bytes([n % 256]) * (100_000 + n) for n in range(60)]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_epoch_gives_the_same(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames.file_of(PAYLOADS))
    dataset = ps.open(path, raw=True, mmap=True)
    for _ in range(3):
        assert records_of(dataset, threads=threads) == PAYLOADS
        assert dataset[41] == {"record": PAYLOADS[41]}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_file_that_was_cut_between_two_epochs_is_an_error(tmp_path: Path, threads: int) -> None:
    """The system is not asked again for pages that were read before, except at the end of each window: a process that
    touches missing pages is killed."""
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames.file_of(PAYLOADS))
    code = f"""
        import os, sys
        import penstock as ps
        dataset = ps.open(sys.argv[1], raw=True, mmap=True)
        assert sum(batch.num_rows for batch in dataset.scan(threads={threads})) == {len(PAYLOADS)}
        os.truncate(sys.argv[1], 1_000_000)
        try:
            list(dataset.scan(threads={threads}))
        except ps.ChangedError as error:
            print(error.message)
    """
    assert "truncated" in run_python(textwrap.dedent(code), str(path))
