"""If a change of fields was killed between two shards, the same call finishes it, and changes that were made since
are never lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage.local_sink import TEMPORARY_SUFFIX, temporary_beside
from penstock.verbs.fields import bake as baking
from penstock.verbs.fields.rewrite_journal import Journal
from reading import index_of


class Killed(BaseException):
    """Raised to end a job as a kill would."""


@pytest.fixture
def three(tmp_path: Path) -> list[str]:
    """Three shards of three records each."""
    rows = {"id": np.arange(9), "text": [f"text {n}" for n in range(9)]}
    return list(ps.write(rows, tmp_path / "a.tfrecord", num_shards=3).paths)


def killed_after(shard: int, job: Callable[[], Any], place: Any, name: str) -> None:
    """Run a job, and end it immediately after the call of this name for a shard."""
    real = getattr(place, name)
    calls: list[int] = []

    def then_die(*arguments: Any) -> None:
        real(*arguments)
        calls.append(1)
        if len(calls) == shard + 1:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, then_die)
        with pytest.raises(Killed):
            job()


def lengths(batch: pa.RecordBatch) -> dict[str, Any]:
    """A function whose result has a different type than its input."""
    return {"text": [len(text) for text in batch["text"].to_pylist()]}


JOBS: dict[str, Callable[[list[str]], Any]] = {
    "add": lambda paths: ps.add_fields(paths, {"x": np.arange(9)}, in_place=True),
    "add by a key": lambda paths: ps.add_fields(
        paths, pa.table({"id": np.arange(9), "x": np.arange(9)}), by="id", in_place=True
    ),
    "drop": lambda paths: ps.drop_fields(paths, "text", in_place=True),
    "rename": lambda paths: ps.rename_fields(paths, {"text": "word"}, in_place=True),
    "rename two": lambda paths: ps.rename_fields(
        paths, {"text": "id", "id": "text"}, in_place=True
    ),
    "replace": lambda paths: ps.replace_fields(paths, {"text": 5}, in_place=True),
    "replace by a function": lambda paths: ps.replace_fields(
        paths, lengths, reads=["text"], in_place=True
    ),
    "add a function in the place of what it reads": lambda paths: ps.add_fields(
        paths, lengths, reads=["text"], replace=True, in_place=True
    ),
}


def moments() -> list[Any]:
    """Every job, and the shard after which it is killed. The results of a function cannot be computed again if no
    record has its input any more, so for these jobs one shard is left."""
    return [
        pytest.param(job, shard, id=f"{name}, {shard}")
        for name, job in JOBS.items()
        for shard in range(2 if "function" in name else 3)
    ]


@pytest.mark.parametrize(("job", "shard"), moments())
def test_every_killed_job_is_finished_by_the_same_call(
    three: list[str], tmp_path: Path, job: Callable[[list[str]], Any], shard: int
) -> None:
    reference = [shutil.copy(path, tmp_path / f"b-{n}.tfrecord") for n, path in enumerate(three)]
    for path, copy in zip(three, reference, strict=True):
        shutil.copy(index_of(path), index_of(copy))
    job([str(path) for path in reference])
    killed_after(shard, lambda: job(three), Journal, "finish")
    made = job(three)
    assert [Path(p).read_bytes() for p in three] == [Path(p).read_bytes() for p in reference]
    assert (made.num_records, made.num_bytes) == (9, sum(os.path.getsize(p) for p in three))
    assert ps.open(three).schema == ps.open(reference).schema, "types that were kept stay"
    assert list(ps.open(three)) == list(ps.open(reference))
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".penstock")]


@pytest.mark.parametrize("into", [False, True], ids=["in place", "into a folder"])
def test_files_of_a_job_killed_in_its_first_shard_are_removed(
    three: list[str], tmp_path: Path, into: bool
) -> None:
    folder = tmp_path / "out"
    target = f"into={str(folder)!r}" if into else "in_place=True"
    script = (
        "import os, sys, penstock as ps\n"
        "from penstock.verbs.fields import _splicing as splicing\n"
        "splicing.Output.finish = lambda self: os._exit(9)\n"
        f"ps.add_fields(sys.argv[1:], {{'x': 7}}, {target})\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *three], check=False)
    assert done.returncode == 9
    where = folder if into else tmp_path
    assert [p.name for p in where.iterdir() if p.name.endswith(TEMPORARY_SUFFIX)]
    # Nothing was changed, so a different job may run instead.
    how: dict[str, Any] = {"into": folder} if into else {"in_place": True}
    ps.add_fields(three, {"y": 8}, **how)
    hidden = {p for p in where.iterdir() if p.name.startswith(".")}
    assert hidden == {index_of(where / Path(path).name) for path in three}
    assert [row["y"] for row in ps.open(where)] == [8] * 9


def test_a_shard_that_was_restored_no_longer_belongs_to_the_job(
    three: list[str], tmp_path: Path
) -> None:
    """Neither the size nor the name of a shard shows whether it was changed, and changing it twice may be wrong."""
    old = [Path(path).read_bytes() for path in three]
    job = JOBS["rename two"]
    killed_after(1, lambda: job(three), Journal, "finish")
    for path, data in zip(three, old, strict=True):
        Path(path).write_bytes(data)
    with pytest.raises(ps.ChangedError, match=r"move the original file .* or delete .*json"):
        job(three)
    assert [Path(path).read_bytes() for path in three] == old
    next(tmp_path.glob(".penstock-fields-*.json")).unlink()
    job(three)
    assert [ps.open(path)[0]["text"] for path in three] == [0, 3, 6]


def test_fields_kept_since_a_killed_bake_are_baked_and_not_lost(three: list[str]) -> None:
    ps.add_fields(three, {"x": np.arange(9)})
    bake = lambda: ps.bake_fields(three, in_place=True)  # noqa: E731
    killed_after(0, bake, baking, "remove_overlays")
    with pytest.warns(UserWarning, match="is unfinished"):
        ps.add_fields(three, {"y": np.arange(9) * 2})
    wanted = [{"id": n, "text": f"text {n}", "x": n, "y": 2 * n} for n in range(9)]
    assert [row for path in three for row in ps.open(path)] == wanted
    bake()
    assert ps.overlays(three) == []
    assert [row for path in three for row in ps.open(path)] == wanted


def test_a_bake_that_is_refused_for_another_job_removes_nothing(three: list[str]) -> None:
    killed_after(0, lambda: JOBS["add"](three), Journal, "finish")
    with pytest.warns(UserWarning, match="is unfinished"):
        ps.add_fields(three, {"y": 7})
    with pytest.raises(ps.UnsupportedError, match="is unfinished"):
        ps.bake_fields(three, in_place=True)
    assert [len(overlay.shards) for overlay in ps.overlays(three)] == [3]
    assert [row["y"] for path in three for row in ps.open(path)] == [7] * 9


def test_a_bake_killed_before_it_removed_the_last_overlay_ends_with_no_overlay(
    three: list[str],
) -> None:
    ps.add_fields(three, {"x": np.arange(9)})
    pattern = str(Path(three[0]).parent / "a-*.tfrecord")
    killed_after(2, lambda: ps.bake_fields(pattern, in_place=True), baking, "remove_overlays")
    made = ps.bake_fields(pattern, in_place=True)
    assert made.num_records == 9
    assert [row["x"] for row in ps.open(pattern)] == list(range(9))
    with pytest.raises(ValueError, match="has no overlays"):
        ps.bake_fields(pattern, in_place=True)


@pytest.mark.parametrize("name", ["add", "add by a key"])
def test_files_of_a_job_killed_before_it_had_a_note_are_removed(
    three: list[str], tmp_path: Path, name: str
) -> None:
    """For example, half an index of a file that the job had only opened."""
    left = Path(temporary_beside(str(index_of(three[1]))))
    others = tmp_path / f".somebody-elses.tfrecord.0123456789ab{TEMPORARY_SUFFIX}"
    for path in (left, others):
        path.write_bytes(b"half")
    JOBS[name](three)
    assert not left.exists()
    assert others.exists()
