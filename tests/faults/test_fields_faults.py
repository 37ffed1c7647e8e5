"""Whatever fails while fields are added in place, each shard is the complete old one or the complete new one, and the
same call finishes the job."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from storage_double import FailingCalls, FullDisk

import penstock as ps
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls
from penstock.verbs.fields import _rewrite as rewrite
from penstock.verbs.fields import rewrite_journal
from reading import index_of

SHARDS = 3


def shards(folder: Path, compression: str | None) -> list[str]:
    folder.mkdir()
    rows = {"id": np.arange(300), "text": ["some text"] * 300}
    made = ps.write(rows, folder / "a.tfrecord", num_shards=SHARDS, compression=compression)
    return list(made.paths)


def change(paths: list[str], calls: Calls | None = None) -> None:
    """The job, which writes all its files through these calls."""
    with pytest.MonkeyPatch.context() as patch:
        if calls is not None:
            for place in (rewrite, rewrite_journal):
                patch.setattr(place, "LocalStorage", lambda: LocalStorage(calls))
        ps.add_fields(paths, {"score": np.arange(300)}, in_place=True, threads=1)


def contents(paths: list[str]) -> list[bytes]:
    data = [Path(path).read_bytes() for path in paths]
    return [gzip.decompress(one) if one[:2] == b"\x1f\x8b" else one for one in data]


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize("double", [FailingCalls, FullDisk], ids=["one fails", "all fail"])
def test_every_failing_call_leaves_whole_shards_and_is_made_good(
    tmp_path: Path, double: Callable[..., FailingCalls], error: int, compression: str | None
) -> None:
    paths = shards(tmp_path / "reference", compression)
    old = contents(paths)
    counting = FailingCalls(None)
    change(paths, counting)
    new = contents(paths)
    assert counting.seen > 20
    assert not set(old) & set(new)
    mixed = 0
    for failing in range(counting.seen):
        paths = shards(tmp_path / str(failing), compression)
        calls = double(failing, error)
        raised: OSError | None = None
        try:
            change(paths, calls)
        except OSError as caught:
            raised = caught
        # Closing works on a full disk, and is the last call.
        assert calls.failed is not None or (double is FullDisk and failing == counting.seen - 1)
        assert raised is None or raised.errno == error, (failing, calls.failed)
        found = contents(paths)
        where = (failing, calls.failed)
        assert all(f in (o, n) for f, o, n in zip(found, old, new, strict=True)), where
        # A fault that is not reported may not affect the records.
        assert raised is not None or found == new, where
        mixed += 0 < sum(f == n for f, n in zip(found, new, strict=True)) < SHARDS
        if raised is not None:
            change(paths)
        assert contents(paths) == new, where
        hidden = {name for name in os.listdir(tmp_path / str(failing)) if name.startswith(".")}
        left = hidden - {index_of(path).name for path in paths}
        assert not left, (where, left)
    assert mixed


def test_a_failing_call_is_reported(tmp_path: Path) -> None:
    """This shows that the double does intercept the writes."""
    paths = shards(tmp_path / "a", None)
    with pytest.raises(OSError, match="No space left"):
        change(paths, FullDisk(0, errno.ENOSPC))
