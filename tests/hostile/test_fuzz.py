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
RUNS = 15_000
# Whole files of formats that pyarrow parses cost a hundred times a kernel's call. The runs are the
# same ones each time, unless there is a seed; many more are under `make stress` and `make fuzz`.
FEWER = {"parquet": 1_300, "arrow": 1_300, "tfrecord": 4_000, "mds": 1_000, "listing": 1_000}
FEWER |= {"arrayrecord": 500, "riegeli": 5_000, "beton": 800, "npy": 1_700, "npz": 800}
FEWER |= dict.fromkeys(
    ("jpeg", "png", "webp", "ppm", "other_images", "masks", "train_images", "tensor_images"), 1_700
)
FEWER["jpeg_ways"] = 5_000
FEWER |= {"recordio_file": 1_700, "take": 1_700}
FEWER |= {"index": 3_300, "overlay": 1_000, "note": 700, "rewrite_journal": 350}
FEWER |= {"convert_journal": 350, "cache": 700}
FEWER |= {"webdataset": 800, "loader_state": 800, "hdf5": 170}


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
