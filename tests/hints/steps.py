"""The building blocks for the cases of hints."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from click.testing import CliRunner
from PIL import Image

import penstock as ps

Step = Callable[[], Any]


class Case(NamedTuple):
    """A call that raises a hint, a call that follows its advice, and the hint's text if the source does not contain
    it.

    A case may be used once, in an empty folder. `advised` asserts that the resulting data is right.
    """

    fails: Step
    advised: Step
    hint: str | None = None


Make = Callable[[], Case]
Cases = Mapping[str, "Make | tuple[Make, ...]"]
"""The cases by the source text of their hint. A hint has several cases if its text has branches, or if it has several
causes."""


def twice(call: Callable[..., Any], *given: Any, gives: Any, **advice: Any) -> Case:
    """A case that repeats the call with the keywords that the hint names, and compares the result with `gives`."""

    def advised() -> None:
        assert call(*given, **advice) == gives

    return Case(lambda: call(*given), advised)


def rows(*given: Any, **options: Any) -> list[Any]:
    """All records of the opened source."""
    return list(ps.open(*given, **options))


def equal_in(table: pa.Table, *paths: str, **options: Any) -> None:
    """Write a table to each of these paths, in formats that return values and types unchanged."""
    for path in paths:
        ps.write(table, path, **options)
        found = pa.table(ps.open(path))
        assert found.column_names == table.column_names, path
        for name in table.column_names:
            assert found.column(name).type == table.column(name).type, (path, name)
            assert found.column(name).to_pylist() == table.column(name).to_pylist(), (path, name)


def left_out(table: pa.Table, name: str, target: str, **options: Any) -> None:
    """Write a table without one column, as convert does with columns=."""
    ps.write(table, "all.arrow", overwrite=True)
    rest = [other for other in table.column_names if other != name]
    ps.convert("all.arrow", target, columns=rest, **options)
    assert rows(target) == table.select(rest).to_pylist()


def apart(program: str, **variables: str) -> Case:
    """A case whose libraries need a separate process: a program defines `fails` and `advised`."""

    def run(step: str, seconds: float = 120) -> None:
        done = subprocess.run(
            [sys.executable, "-c", f"{program}\nif __name__ == '__main__':\n    {step}"],
            capture_output=True,
            text=True,
            timeout=seconds,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **variables},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        hint = re.search("^hint: (.*)", done.stdout, re.MULTILINE)
        if hint is not None:
            raise ps.PenstockError("in the other process", hint=hint[1])

    fails = """
    import penstock
    try:
        fails()
    except penstock.PenstockError as error:
        print("hint:", error.hint)
"""
    return Case(lambda: run(fails), lambda: run("advised()"))


def cli(line: str) -> str:
    """Run a command, given without the word penstock, and check that it succeeds."""
    from penstock.cli.program import program

    done = CliRunner().invoke(program, shlex.split(line), catch_exceptions=False)
    assert not done.exit_code, done.output
    return done.stdout


def png(grey: int) -> bytes:
    """An image file of two pixels."""
    file = io.BytesIO()
    Image.new("L", (2, 1), grey).save(file, "PNG")
    return file.getvalue()


IMAGES = {f"{n}.png": png(n) for n in range(2)}


def folder_of_images(**tables: str) -> None:
    """A folder "d" with IMAGES, and with tables that have these endings."""
    Path("d").mkdir(exist_ok=True)
    for name, data in IMAGES.items():
        Path("d", name).write_bytes(data)
    for ending, text in tables.items():
        Path(f"d/metadata.{ending}").write_text(text)
