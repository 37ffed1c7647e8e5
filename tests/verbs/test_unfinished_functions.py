"""A killed call whose values a function computes: the same call continues, and a changed function is another call."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.cluster import Failed
from penstock.verbs.fields._functions import described
from penstock.verbs.fields.rewrite_journal import Journal


class Killed(BaseException):
    """Raised to end a call as a kill would."""


class Scores:
    """A function that counts its records, and ends the call at one of them."""

    def __init__(self, killed_at: int | None = None) -> None:
        self.killed_at, self.ids = killed_at, list[int]()

    def __call__(self, batch: pa.RecordBatch) -> dict[str, Any]:
        ids = batch["id"].to_pylist()
        if self.killed_at in ids and self.ids:  # not in the call that finds the types
            raise Killed
        self.ids += ids
        return {"score": [n * 0.5 for n in ids]}


@pytest.fixture(params=["tfrecord", "parquet"])
def four(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    """Four shards of twenty records each."""
    rows = {"id": np.arange(80), "text": [f"text {n}" for n in range(80)]}
    return list(ps.write(rows, tmp_path / f"a.{request.param}", num_shards=4).paths)


def hidden(path: str) -> list[str]:
    return sorted(p.name for p in Path(path).parent.rglob(".*.penstock-fields/*"))


@pytest.mark.parametrize("verb", [ps.add_fields, partial(ps.replace_fields, where="id >= 0")])
def test_an_overlay_is_continued(four: list[str], verb: Callable[..., Any]) -> None:
    if verb is not ps.add_fields:
        ps.add_fields(four, {"score": 1.5})
        verb = partial(verb)
    with pytest.raises(Killed):
        verb(four, Scores(50), reads=["id"], threads=1)
    assert "score" not in ps.open(four, overlays=False).schema.names
    assert len(ps.overlays(four)) == (verb is not ps.add_fields), "none of it is visible"
    again = Scores()
    verb(four, again, reads=["id"], threads=1)
    assert again.ids[16:] == list(range(40, 80)), "after the first records, for the types"
    assert ps.open(four).to_table()["score"].to_pylist() == [n * 0.5 for n in range(80)]
    assert not [name for name in hidden(four[0]) if name.endswith(".unfinished")]


def test_a_killed_process_leaves_what_the_same_call_continues_with(four: list[str]) -> None:
    script = (
        "import os, sys, penstock as ps\n"
        "def score(batch):\n"
        "    ids = batch['id'].to_pylist()\n"
        "    if 50 in ids and os.path.exists(sys.argv[1]):\n"
        "        os._exit(9)\n"
        "    open(sys.argv[2], 'a').write(f'{len(ids)}\\n')\n"
        "    return {'score': [n * 0.5 for n in ids]}\n"
        "ps.add_fields(sys.argv[3:], score, reads=['id'], threads=1)\n"
    )
    folder = Path(four[0]).parent
    kill, seen = folder / "kill.log", folder / "seen.log"
    kill.touch()
    command = [sys.executable, "-c", script, kill, seen, *four]
    assert subprocess.run(command, check=False).returncode == 9
    kill.unlink()
    seen.unlink()
    subprocess.run(command, check=True)
    assert sum(map(int, seen.read_text().split())) == 16 + 40
    assert ps.open(four)[79]["score"] == 39.5
    assert sorted(hidden(four[0])) == ["score.overlay"] * 4, "nothing else is left"


def test_values_of_a_changed_file_are_computed_again(four: list[str]) -> None:
    with pytest.raises(Killed):
        ps.add_fields(four, Scores(50), reads=["id"], threads=1)
    ps.write({"id": [100, 101], "text": ["", ""]}, four[1], overwrite=True)
    again = Scores()
    ps.add_fields(four, again, reads=["id"], threads=1)
    assert again.ids[16:] == [100, 101, *range(40, 80)]
    assert ps.open(four[1]).to_table()["score"].to_pylist() == [50.0, 50.5]


def test_values_of_another_overlay_are_computed_again(four: list[str]) -> None:
    ps.replace_fields(four, {"id": np.arange(80) + 100})
    with pytest.raises(Killed):
        ps.add_fields(four, Scores(150), reads=["id"], threads=1)
    ps.replace_fields(four, {"id": np.arange(80) + 200})
    with pytest.raises(ps.UnsupportedError, match="from other values of what it reads"):
        ps.add_fields(four, Scores(), reads=["id"])


def test_an_overlay_of_another_function_is_refused_until_it_is_removed(four: list[str]) -> None:
    with pytest.raises(Killed):
        ps.add_fields(four, Scores(50), reads=["id"], threads=1)

    def other(batch: pa.RecordBatch) -> dict[str, Any]:
        return {"score": [n * 0.25 for n in batch["id"].to_pylist()]}

    with pytest.raises(ps.UnsupportedError, match=r"2 of 4 files.*\n.*remove SOURCE score"):
        ps.add_fields(four, other, reads=["id"])
    assert len(ps.remove_overlay(four, "score")) == 2
    assert hidden(four[0]) == []
    ps.add_fields(four, other, reads=["id"])
    assert ps.open(four)[79]["score"] == 79 * 0.25


def test_overwrite_starts_again_with_another_function(four: list[str]) -> None:
    with pytest.raises(Killed):
        ps.add_fields(four, Scores(50), reads=["id"], threads=1)
    ps.add_fields(four, lambda b: {"score": [7.0] * b.num_rows}, reads=["id"], overwrite=True)
    assert set(ps.open(four).to_table()["score"].to_pylist()) == {7.0}
    assert len(hidden(four[0])) == 4


def test_an_error_of_the_function_leaves_nothing(four: list[str]) -> None:
    def wrong(batch: pa.RecordBatch) -> dict[str, Any]:
        ids = batch["id"].to_pylist()
        return {"score": ["" if 50 in ids else 0.5] * len(ids)}

    with pytest.raises(ps.SchemaError, match="another type"):
        ps.add_fields(four, wrong, reads=["id"], threads=1)
    assert hidden(four[0]) == []


class Here:
    """Runs tasks in this process, in another order."""

    def __init__(self) -> None:
        self.num_tasks = 0

    def run(self, function: Any, tasks: Any, paths: Any) -> Any:
        del paths
        for number in reversed(range(len(tasks))):
            self.num_tasks += 1
            try:
                yield number, function(tasks[number])
            except Exception as error:
                yield number, Failed(error)


def test_an_overlay_is_continued_on_machines(four: list[str]) -> None:
    with pytest.raises(Killed):
        ps.add_fields(four, Scores(50), reads=["id"], threads=1)
    on: Any = Here()
    ps.add_fields(four, Scores(), reads=["id"], on=on)
    assert on.num_tasks == 2
    assert ps.open(four).to_table()["score"].to_pylist() == [n * 0.5 for n in range(80)]


@pytest.mark.parametrize("into", [False, True], ids=["in place", "into"])
def test_files_are_not_continued_with_a_changed_function(
    four: list[str], tmp_path: Path, into: bool
) -> None:
    how: dict[str, Any] = {"into": tmp_path / "out"} if into else {"in_place": True}
    kept, real = [], Journal.finish

    def then_die(self: Journal, shard: int) -> None:
        real(self, shard)
        kept.append(shard)
        if len(kept) == 2:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "finish", then_die)
        with pytest.raises(Killed):
            ps.add_fields(four, saved(tmp_path, "n * 2"), reads=["id"], **how)
    with pytest.raises(ps.UnsupportedError, match=r"the same function \(its code may not have"):
        ps.add_fields(four, saved(tmp_path, "n * 3"), reads=["id"], **how)
    ps.add_fields(four, saved(tmp_path, "n * 2"), reads=["id"], **how)
    found = ps.open(tmp_path / "out" if into else four).to_table()
    assert found["twice"].to_pylist() == [2 * n for n in range(80)]


def saved(folder: Path, value: str, after: str = "") -> Any:
    """A function `twice` of a module that is loaded from a file."""
    path = folder / "functions.py"
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    path.write_text(
        "def of(n):\n"
        f"    return {value}\n\n"
        "def twice(batch):\n"
        f"    return {{'twice': [of(n) for n in batch['id'].to_pylist()]}}\n{after}"
    )
    spec = importlib.util.spec_from_file_location("functions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.twice


def test_what_a_function_is_told_by(tmp_path: Path) -> None:
    def scaled(by: float) -> Any:
        return lambda batch: batch["id"].to_numpy() * by

    def counting(count: int) -> Any:
        def function(batch: pa.RecordBatch) -> Any:
            nonlocal count
            count += batch.num_rows
            return batch

        return function

    same = [saved(tmp_path, "n"), saved(tmp_path, "n", after="# a comment\n")]
    assert len(set(map(described, same))) == 1
    assert described(scaled(2)) == described(scaled(2))
    assert described(scaled(2)) != described(scaled(3))
    assert described(counting(0)) == described(counting(5)), "it changes itself"
    assert described(partial(print, 1)) != described(partial(print, 2))
    assert described(Scores()) == described(Scores(3)), "its state may be a model"
    assert described(saved(tmp_path, "n in {'a', 'b', 'c'}")) == described(
        saved(tmp_path, "n in {'c', 'b', 'a'}")
    )
    assert described(np.sum).startswith("numpy.sum ")
