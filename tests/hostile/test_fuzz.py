"""The fuzz targets, each in a process of its own: seeds are printed and can be set.

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
RUNS = 100_000
# Whole files of formats that pyarrow parses cost a hundred times a kernel's call; the full number
# of runs of these is under `make stress`.
FEWER = {"parquet": 10_000, "arrow": 10_000, "tfrecord": 25_000, "mds": 6_000, "listing": 6_000}
FEWER |= {"arrayrecord": 3_000, "riegeli": 30_000, "beton": 5_000, "npy": 10_000, "npz": 5_000}
FEWER |= dict.fromkeys(("jpeg", "png", "webp", "ppm", "train_images", "tensor_images"), 10_000)
FEWER["jpeg_ways"] = 30_000
FEWER |= {"recordio_file": 10_000, "take": 10_000}
FEWER |= {"index": 30_000, "overlay": 10_000, "note": 5_000, "rewrite_journal": 2_000}
FEWER |= {"convert_journal": 3_000, "cache": 5_000}
FEWER |= {"webdataset": 5_000, "loader_state": 5_000, "hdf5": 1_000}


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
    # Each file of HDF5 is read in a process of its own.
    runs = 20_000 if target == "hdf5" else RUNS if target in FEWER else 1_000_000
    fuzz(target, runs, str(int(SEED) + 1000), 7200)
