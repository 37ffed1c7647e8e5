"""Everyday work, as programs that a new user could write after reading the README and the guide."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


def run(command: list[str], folder: Path) -> str:
    """Run a program in an empty folder, and return what it printed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def test_an_engineer_trains_in_torch_on_two_ranks_and_continues(tmp_path: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run([*torchrun, str(HERE / "torch_engineer.py")], tmp_path)


@pytest.mark.parametrize("program", ["jax_tokens", "analyst", "researcher"])
def test_the_program_runs(program: str, tmp_path: Path) -> None:
    run([str(HERE / f"{program}.py")], tmp_path)


def test_a_notebook_prints_the_same_after_one_import_is_swapped(tmp_path: Path) -> None:
    program = (HERE / "flowers_notebook.py").read_text("utf-8")
    swapped = program.replace("import tensorflow as tf", "import penstock.tf as tf")
    assert swapped != program
    for name, text in (("before", program), ("after", swapped)):
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
    before, after = (run([str(tmp_path / f"{n}.py")], tmp_path / n) for n in ("before", "after"))
    assert after == before
    assert after.startswith("REPLICAS: 1\nimages: 70 20\n")
