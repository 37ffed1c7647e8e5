"""torch, Lightning, Accelerate, JAX, Keras and Grain, each in a process of its own.

`pytest tests/interop/test_loader_torch.py` runs one of them directly; for JAX and Keras see WORLDS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("world", WORLDS)
def test_the_loader_is_at_home_with(world: str, tmp_path: Path) -> None:
    name, more = WORLDS[world]
    path = Path(__file__).with_name(f"test_loader_{name}.py")
    # Accelerators are left alone, and so is what these libraries keep in the home folder. Their own
    # deprecations are theirs; warnings of any other kind are errors, as everywhere.
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}"]
    quiet = ["-W", "ignore::DeprecationWarning", "-W", "ignore::FutureWarning"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *quiet, str(path)],
        capture_output=True,
        text=True,
        timeout=900,
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "HF_HUB_OFFLINE": "1",
            "HOME": str(tmp_path),
            **more,
        },
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
