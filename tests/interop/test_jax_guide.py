"""The program of docs/guide/jax.md, on two processes of JAX that talk over the loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from reading import ROOT

pytest.importorskip("jax")

DATA, PROGRAM = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "guide" / "jax.md").read_text("utf-8"),
    re.MULTILINE | re.DOTALL,
)
BATCH, COUNT, STEPS_OF_AN_EPOCH = 16, 300, 10
# What each process gives to JAX, before the program runs.
WATCH = """
import json
import numpy as np
from penstock.adapters.jax import JaxBatches
from penstock.loader.loader import Loader

sharded, loader = JaxBatches._sharded, Loader.__init__

def with_numbers(self, *given, **more):
    loader(self, *given, record_numbers="number", **more)

def watched(self, batch):
    made = sharded(self, batch)
    shapes = {name: [*array.shape] for name, array in made.items()}
    local = {name: np.concatenate([part.data for part in array.addressable_shards]).tolist()
             for name, array in made.items() if name in ("number", "mask")}
    print("given", json.dumps({"shapes": shapes, **local}), flush=True)
    return made

JaxBatches._sharded, Loader.__init__ = watched, with_numbers
"""


@dataclass
class Host:
    losses: dict[int, float] = field(default_factory=dict)
    given: list[dict[str, Any]] = field(default_factory=list)


def trained(folder: Path, last_step: int) -> list[Host]:
    """Run the two processes up to a step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "train.py").write_text(WATCH + PROGRAM)
    env = {
        **os.environ,
        "COORDINATOR": address,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",
        "CUDA_VISIBLE_DEVICES": "",
    }
    running = [
        subprocess.Popen(
            [sys.executable, "train.py", str(rank), str(last_step)],
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    hosts = []
    try:
        for one in running:
            out, err = one.communicate(timeout=300)
            assert one.returncode == 0, out[-2000:] + err[-4000:]
            host = Host()
            for line in out.splitlines():
                if line.startswith("given "):
                    host.given.append(json.loads(line.removeprefix("given ")))
                elif found := re.fullmatch(r"step (\d+) loss (.+)", line):
                    host.losses[int(found[1])] = float(found[2])
            hosts.append(host)
    finally:
        for one in running:
            one.kill()
            one.communicate()
    return hosts


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jax")
    before = os.getcwd()
    os.chdir(folder)
    try:
        exec(DATA, {"__name__": "example"})
    finally:
        os.chdir(before)
    return folder


def copied(folder: Path, target: Path) -> Path:
    shutil.copy(folder / "words.tfrecord", target)
    return target


@pytest.fixture(scope="module")
def whole(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Host]:
    """Three epochs without a stop."""
    return trained(copied(folder, tmp_path_factory.mktemp("whole")), 3 * STEPS_OF_AN_EPOCH)


def test_both_hosts_have_the_same_shapes_and_losses_and_the_model_learns(whole: list[Host]) -> None:
    one, other = whole
    shapes = {"tokens": [32, 8], "label": [32], "mask": [32], "number": [32]}
    for host in whole:
        assert all(given["shapes"] == shapes for given in host.given)
        assert list(host.losses) == list(range(1, 31))
    assert one.losses == other.losses
    losses = list(one.losses.values())
    assert np.mean(losses[-10:]) < 0.7 * losses[0]


def test_the_hosts_share_the_records_of_each_epoch(whole: list[Host]) -> None:
    for epoch in range(3):
        steps = slice(epoch * STEPS_OF_AN_EPOCH, (epoch + 1) * STEPS_OF_AN_EPOCH)
        real = [
            [
                number
                for given in host.given[steps]
                for number, is_real in zip(given["number"], given["mask"], strict=True)
                if is_real
            ]
            for host in whole
        ]
        assert not set(real[0]) & set(real[1])
        assert sorted(real[0] + real[1]) == list(range(COUNT))


def test_the_gradients_are_those_of_the_whole_batch(folder: Path, whole: list[Host]) -> None:
    """The same steps in NumPy, on the records of both hosts together."""
    ds = ps.open(folder / "words.tfrecord")
    rows = [ds[n] for n in range(COUNT)]
    table = np.zeros((32, 2))
    for step in range(STEPS_OF_AN_EPOCH):
        slope, losses, total = np.zeros_like(table), 0.0, 0
        for host in whole:
            given = host.given[step]
            for number, is_real in zip(given["number"], given["mask"], strict=True):
                if is_real:
                    words, label = np.asarray(rows[number]["tokens"]), rows[number]["label"]
                    scores = table[words].sum(0)
                    chances = np.exp(scores) / np.exp(scores).sum()
                    losses -= np.log(chances[label])
                    np.add.at(slope, words, chances - np.eye(2)[label])
                    total += 1
        assert whole[0].losses[step + 1] == pytest.approx(losses / total, rel=1e-4)
        table -= 1.0 * slope / total


@pytest.mark.parametrize("stop", [7, pytest.param(STEPS_OF_AN_EPOCH, marks=pytest.mark.stress)])
def test_a_run_that_stopped_continues_exactly(
    folder: Path, whole: list[Host], stop: int, tmp_path: Path
) -> None:
    copied(folder, tmp_path)
    first, second = trained(tmp_path, stop), trained(tmp_path, 3 * STEPS_OF_AN_EPOCH)
    for part, rest, host in zip(first, second, whole, strict=True):
        assert part.losses | rest.losses == host.losses
        assert min(rest.losses) == stop + 1
        # A batch may have been prefetched beyond the stop.
        assert part.given[:stop] + rest.given == host.given
