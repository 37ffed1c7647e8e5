"""Runs the command line for the tests, in this process or in a separate process as from a shell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from penstock.cli.program import program


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout. NaN and infinities are not valid JSON."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


def run(*arguments: object) -> Ran:
    """Run a command in this process."""
    result = CliRunner().invoke(program, [str(a) for a in arguments], catch_exceptions=False)
    return Ran(result.exit_code, result.stdout, result.stderr)


def run_process(*arguments: object, cwd: Path | None = None, **environment: str) -> Ran:
    """Run a command in a separate process with its output piped."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *map(str, arguments)],
        env={**os.environ, **environment},
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)
