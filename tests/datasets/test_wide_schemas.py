"""The cost of a verb grows in proportion to the number of fields, not with its square."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program

FEW, MANY = 250, 2000
FORMATS = (
    "tfrecord",
    "npz",
    *(
        pytest.param(name, marks=pytest.mark.stress)
        for name in ("parquet", "arrow", "msgpack", "tar", "h5", "beton")
    ),
)


def _run(*words: str) -> None:
    done = CliRunner().invoke(program, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def _row(num_fields: int) -> dict[str, int]:
    return {f"f{number:06d}": number for number in range(num_fields)}


VERBS: dict[str, Callable[[Path, int], Any]] = {
    "write": lambda path, n: ps.write([_row(n)] * 2, path.with_stem("made"), overwrite=True),
    "open": lambda path, n: ps.open(path).schema,
    "scan": lambda path, n: list(ps.open(path).scan()),
    "iterate": lambda path, n: list(ps.open(path)),
    "columns": lambda path, n: ps.open(path, columns=list(_row(n))).take([1], list(_row(n))),
    "load": lambda path, n: list(ps.Loader(ps.open(path, columns=list(_row(n))), 2)),
    "schema": lambda path, n: _run("schema", str(path)),
    "info": lambda path, n: _run("info", str(path)),
    "head": lambda path, n: _run("head", str(path)),
    "stats": lambda path, n: ps.stats(path),
    "verify": lambda path, n: ps.verify(path),
    "diff": lambda path, n: ps.diff(path, path),
    "convert": lambda path, n: ps.convert(path, path.with_stem("made"), overwrite=True),
    "overlay": lambda path, n: ps.open(path.with_stem(f"wider{n}")).take([1]),
}


def _seconds(call: Callable[[], Any]) -> float:
    """CPU time, so that other programs on the machine matter little. The garbage collector is off, because its cost
    grows with the objects that earlier tests left in the process."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        call()
        return time.process_time() - start
    finally:
        gc.enable()


@pytest.mark.parametrize("ending", FORMATS)
def test_verbs_are_linear_in_fields(tmp_path: Path, ending: str) -> None:
    for num_fields in (FEW, MANY):
        for stem in ("w", "wider"):
            ps.write([_row(num_fields)] * 2, tmp_path / f"{stem}{num_fields}.{ending}")
        ps.add_fields(tmp_path / f"wider{num_fields}.{ending}", {"new": [1, 2]})
    slow: dict[str, tuple[float, float]] = {}
    for name, verb in VERBS.items():
        for _ in range(2):  # measured again, because the first result may be wrong
            few, many = (
                _seconds(partial(verb, tmp_path / f"w{n}.{ending}", n)) for n in (FEW, MANY)
            )
            if many <= 2.5 * MANY / FEW * max(few, 0.02):
                break
        else:
            slow[name] = few, many
    assert not slow


def test_schemas_of_several_files_are_linear_in_fields(tmp_path: Path) -> None:
    for num_fields in (FEW, MANY):
        for number in range(2):
            ps.write([_row(num_fields)] * 2, tmp_path / f"{num_fields}-{number}.tfrecord")

    def cost(n: int) -> float:
        files = str(tmp_path / f"{n}-*.tfrecord")
        return _seconds(
            lambda: (ps.schemas(files, everything=True), _run("schema", "--tensorflow", files))
        )

    # Compare the minimum of each. Compared in pairs, a fast small run might meet a disturbed large
    # run.
    few, many = (
        min(costs) for costs in zip(*((cost(FEW), cost(MANY)) for _ in range(4)), strict=True)
    )
    assert many <= 2.5 * MANY / FEW * max(few, 0.02)
