"""Runs the fuzz targets, each in a separate process. Seeds are printed and can be set:

PENSTOCK_SEED=7 pytest tests/hostile/test_fuzz.py
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fuzz.targets import TARGETS
from reading import ROOT

SEED = os.environ.get("PENSTOCK_SEED", "1")
RUNS = 7_500
# Whole files of formats that pyarrow parses cost a hundred times a kernel's call. The runs are the
# same ones each time, unless there is a seed; many more are under `make stress` and `make fuzz`.
FEWER = {"parquet": 650, "arrow": 650, "tfrecord": 2_000, "mds": 500, "listing": 500}
FEWER |= {"arrayrecord": 250, "riegeli": 2_500, "beton": 400, "npy": 850, "npz": 400}
FEWER |= dict.fromkeys(
    ("jpeg", "png", "webp", "ppm", "other_images", "masks", "train_images", "tensor_images"), 850
)
FEWER["jpeg_ways"] = 2_500
FEWER |= {"recordio_file": 850, "take": 850}
FEWER |= {"index": 1_650, "overlay": 500, "note": 350, "rewrite_journal": 175}
FEWER |= {"convert_journal": 175, "cache": 350}
FEWER |= {"webdataset": 400, "loader_state": 400, "hdf5": 85}


def fuzz(target: str, runs: int, seed: str, seconds: float) -> None:
    command = [sys.executable, "-m", "fuzz", target, "--runs", str(runs), "--seed", seed]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, f"{' '.join(command[1:])}\n{done.stdout}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("target", list(TARGETS))
def test_hostile_bytes_end_in_data_or_an_error(target: str) -> None:
    fuzz(target, FEWER.get(target, RUNS), SEED, 300)


@pytest.mark.stress
@pytest.mark.parametrize("target", list(TARGETS))
def test_a_million_hostile_files(target: str) -> None:
    # Each file of HDF5 is read in a separate process.
    runs = 20_000 if target == "hdf5" else 100_000 if target in FEWER else 1_000_000
    fuzz(target, runs, str(int(SEED) + 1000), 7200)
