"""Losses, metrics and layers of Keras that call `tf` get TensorFlow's values and gradients, on JAX and on torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beside_tensorflow import theirs
from keras_cases import LOSSES, OTHERS, Y_PRED, Y_TRUE, flat, total

PROGRAM = Path(__file__).with_name("keras_cases.py")


def expected() -> dict[str, np.ndarray[Any, Any]]:
    found: dict[str, Any] = {}
    for name, function in {**LOSSES, **OTHERS}.items():
        given = theirs.constant(Y_PRED)
        with theirs.GradientTape() as tape:
            tape.watch(given)
            made = flat(function(theirs, theirs.constant(Y_TRUE), given))
            number: Any = total(theirs, made) if name in LOSSES else None
        found.update({f"{name} {n}": part.numpy() for n, part in enumerate(made)})
        if name in LOSSES:
            found[f"{name} gradient"] = np.asarray(tape.gradient(number, given))
    return found


QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


@pytest.mark.parametrize("backend", ["jax", pytest.param("torch", marks=pytest.mark.stress)])
def test_functions_on_tensors_of_keras_are_tensorflows(backend: str, tmp_path: Path) -> None:
    path = str(tmp_path / "found.npz")
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": QUICKLY,
    }
    call = [sys.executable, str(PROGRAM), path]
    ran = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    with np.load(path) as found:
        wanted = expected()
        assert found.keys() == wanted.keys()
        for name, values in wanted.items():
            assert found[name].dtype.kind == values.dtype.kind, name
            np.testing.assert_allclose(found[name], values, rtol=3e-5, atol=3e-6, err_msg=name)
