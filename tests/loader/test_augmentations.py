"""The recipes of the guide's pages augmentations and mixup, run as separate programs: torchvision's libraries abort a
process that has loaded TensorFlow, which the process of the tests may have done."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reading import ROOT

BLOCK = re.compile(r"^<!-- not run: here.*?-->\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


def run(program: Path, folder: Path) -> None:
    command = [sys.executable, str(program)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize("page", ["augmentations", "mixup"])
def test_the_program_of_the_page_runs(page: str, tmp_path: Path) -> None:
    [block] = BLOCK.findall((ROOT / "docs" / "guide" / f"{page}.md").read_text("utf-8"))
    program = tmp_path / "page.py"
    program.write_text(block, "utf-8")
    run(program, tmp_path)


def test_transforms_are_repeated_in_processes_and_when_resumed_and_colours_change_as_in_torchvision(
    tmp_path: Path,
) -> None:
    run(Path(__file__).parent / "torchvision_program.py", tmp_path)
