"""The recipes of docs/guide/augmentations.md, run as separate programs: torchvision's libraries abort a process that
has loaded TensorFlow, which the process of the tests may have done."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reading import ROOT

PAGE = (ROOT / "docs" / "guide" / "augmentations.md").read_text("utf-8")
BLOCKS = re.findall(
    r"^<!-- not run: here.*?-->\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


def run(program: Path, folder: Path) -> None:
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_the_program_of_the_page_runs(tmp_path: Path) -> None:
    assert len(BLOCKS) == 2
    program = tmp_path / "page.py"
    program.write_text("\n".join(BLOCKS), "utf-8")
    run(program, tmp_path)


def test_transforms_of_torchvision_are_repeated_by_processes_resuming_and_other_batches(
    tmp_path: Path,
) -> None:
    run(Path(__file__).parent / "torchvision_program.py", tmp_path)
