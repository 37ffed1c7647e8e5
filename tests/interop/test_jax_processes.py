"""Two processes of JAX on this machine: the parts of a global array have the same shapes, or are refused."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import penstock as ps

pytest.importorskip("jax")

PROGRAM = """
import sys
import jax
import numpy as np
import penstock as ps

rank, address, how = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
mesh = jax.make_mesh((2,), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
options = {
    "offsets": {},
    "pad": {"ragged": "pad"},
    "pad_to": {"pad_to": {"tokens": 8}},
    "buckets": {"buckets": {"tokens": [2, 4]}, "uneven": "pad"},
    "map": {"ragged": "pad", "map": lambda batch: {"tokens": batch["tokens"]}},
    "alike": {"ragged": "pad", "map": lambda batch: {"tokens": batch["tokens"][:, :1]}},
}[how]
columns = ["tokens"]
loader = ps.Loader(ps.open("t.tfrecord"), 2, rank=rank, world_size=2, columns=columns, **options)
try:
    shapes = []
    for batch in loader.jax(sharding=sharding):
        shapes.append(batch["tokens"].shape)
        total = jax.jit(lambda tokens: tokens.sum())(batch["tokens"])
        print("sum", int(total))
    print("shapes", shapes)
except ps.SchemaError as error:
    print("refused", error.field, error.hint)
"""


def said(folder: Path, how: str) -> list[str]:
    """The output of each of two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), address, how],
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    found = []
    try:
        for one in running:
            out, err = one.communicate(timeout=240)
            lines = [line for line in out.splitlines() if line.split()[0] in WORDS]
            assert lines, err[-3000:]
            found.append("\n".join(lines))
    finally:
        for one in running:
            one.kill()
            one.wait()
    return found


WORDS = ("sum", "shapes", "refused")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # In each step, rank 0 has the first two records and rank 1 has the other two, whose lists are
    # longer.
    lists = [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]] * 2 + [[7], [7, 8, 9]]
    ps.write({"tokens": lists}, tmp_path / "t.tfrecord")
    return tmp_path


def test_fixed_lengths_give_all_processes_the_same_arrays(folder: Path) -> None:
    one, other = said(folder, "pad_to")
    assert one == other
    assert one.splitlines()[-1] == "shapes [(4, 8), (4, 8), (2, 8)]"


def test_buckets_give_all_processes_the_same_arrays(folder: Path) -> None:
    one, other = said(folder, "buckets")
    assert one == other
    shapes = re.findall(r"\(\d+, \d+\)", one.splitlines()[-1])
    assert Counter(shapes) == {"(4, 2)": 2, "(4, 4)": 2}


@pytest.mark.parametrize("how", ["pad", "offsets"])
def test_lists_that_each_process_would_pad_for_itself_are_refused(folder: Path, how: str) -> None:
    for told in said(folder, how):
        assert told.startswith("refused tokens pad_to={'tokens': length}"), told


def test_shapes_that_a_function_makes_are_compared(folder: Path) -> None:
    assert all(told.startswith("refused") for told in said(folder, "map"))
    one, other = said(folder, "alike")
    assert one == other and one.splitlines()[-1] == "shapes [(4, 1), (4, 1), (2, 1)]"
