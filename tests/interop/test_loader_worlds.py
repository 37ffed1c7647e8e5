"""Runs the tests of torch, Lightning, Accelerate, JAX, Keras and Grain, and the programs of the pages about training,
each in a separate process.

`pytest tests/interop/test_loader_torch.py` runs one of them directly; for JAX and Keras see WORLDS.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reading import ROOT

WORLDS: dict[str, tuple[str, dict[str, str]]] = {
    "torch": ("torch", {}),
    "lightning": ("lightning", {}),
    "accelerate": ("accelerate", {"ACCELERATE_USE_CPU": "true"}),
    "jax": ("jax", {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}),
    "keras with torch": ("keras", {"KERAS_BACKEND": "torch"}),
    "keras with jax": ("keras", {"KERAS_BACKEND": "jax"}),
    "keras with tensorflow": ("keras", {"KERAS_BACKEND": "tensorflow"}),
    "grain": ("grain", {}),
}


PAGES = {
    name: (ROOT / "docs" / "guide" / f"{name}.md").read_text("utf-8")
    for name in ("training", "lightning", "keras")
}
PROGRAMS = {
    name: (page, program)
    for page, text in PAGES.items()
    for name, program in re.findall(
        r"^## (.+?)\n.*?^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
}


def run(command: list[str], folder: Path, more: dict[str, str] | None = None) -> None:
    """Run a separate Python, which does not use accelerators or the home folder."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=900,
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",  # the nets are small, and the machine may be shared
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(folder),
            **(more or {}),
        },
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]


# Keras's code is the same on any backend; one backend is always tested.
LONG = {"keras with jax", "keras with tensorflow"}
CASES = [pytest.param(world, marks=pytest.mark.stress if world in LONG else ()) for world in WORLDS]


@pytest.mark.parametrize("world", CASES)
def test_the_loader_is_at_home_with(world: str, tmp_path: Path) -> None:
    name, more = WORLDS[world]
    run_tests(name, tmp_path, more)


@pytest.mark.stress
def test_the_long_tests_of_torch_pass(tmp_path: Path) -> None:
    run_tests("torch", tmp_path, {}, "-m", "stress")


def run_tests(name: str, folder: Path, more: dict[str, str], *choice: str) -> None:
    """Run the tests of one of these libraries."""
    path = Path(__file__).with_name(f"test_loader_{name}.py")
    # Deprecation warnings of these libraries are ignored; all other warnings are errors, as everywhere.
    quiet = ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={ROOT}",
        "-c",
        str(ROOT / "pyproject.toml"),
    ]
    run(["-m", "pytest", *options, *choice, *quiet, str(path)], folder, more)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_of_the_guide_runs(name: str, tmp_path: Path) -> None:
    page, program = PROGRAMS[name]
    data = re.search(r"^```python\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)
    assert data is not None
    (tmp_path / "data.py").write_text(data[1])
    (tmp_path / "program.py").write_text(program)
    run(["data.py"], tmp_path)
    run(["program.py"], tmp_path, {"KERAS_BACKEND": "torch"} if name == "Keras" else None)
