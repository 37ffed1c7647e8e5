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
RUNS = 50_000
# Whole files of formats that pyarrow parses cost a hundred times a kernel's call; the full number
# of runs of these is under `make stress`.
FEWER = {"parquet": 4_000, "arrow": 4_000, "tfrecord": 12_000, "mds": 3_000, "listing": 3_000}
FEWER |= {"arrayrecord": 1_500, "riegeli": 15_000, "beton": 2_500, "npy": 5_000, "npz": 2_500}
FEWER |= dict.fromkeys(
    ("jpeg", "png", "webp", "ppm", "other_images", "masks", "train_images", "tensor_images"), 5_000
)
FEWER["jpeg_ways"] = 15_000
FEWER |= {"recordio_file": 5_000, "take": 5_000}
FEWER |= {"index": 10_000, "overlay": 3_000, "note": 2_000, "rewrite_journal": 1_000}
FEWER |= {"convert_journal": 1_000, "cache": 2_000}
FEWER |= {"webdataset": 2_500, "loader_state": 2_500, "hdf5": 500}


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
