"""The program of docs/guide/ray-train.md: by itself, and on a cluster that loses a worker and its node."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from reading import ROOT

COUNT = 1000
STEP = 32
"""Records of all ranks together in one step."""
ORDERS = [ps.Shuffled(seed=0).take(COUNT, epoch, 0, COUNT).tolist() for epoch in range(2)]

SEEN = """\
def seen(epoch, batch):
    import glob, json, os, time

    context = ray.train.get_context()
    line = {
        "process": os.getpid(),
        "node": ray.get_runtime_context().get_node_id() if ray.is_initialized() else "",
        "ranks": context.get_world_size(),
        "rank": context.get_world_rank(),
        "epoch": epoch,
        "records": batch["x"].int().tolist(),
    }
    with open(f"FOLDER/seen-{time.time_ns()}-{os.getpid()}", "x") as file:
        file.write(json.dumps(line))
    if (line["rank"], line["ranks"]) == (1, 2):
        while len(glob.glob(f"FOLDER/seen-*-{os.getpid()}")) == 25:
            time.sleep(1)  # until it is killed


def save("""


def program(folder: Path, workers: str) -> list[str]:
    """Write the program of the page, which now notes the records that each step sees. Return its command."""
    page = (ROOT / "docs" / "guide" / "ray-train.md").read_text("utf-8")
    found = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    code = found[1]
    for old, new in [
        ("            loss = model(", "            seen(epoch, batch)\n            loss = model("),
        ("def save(", SEEN.replace("FOLDER", str(folder))),
        ("num_workers=(1, 2)", workers),
    ]:
        assert code.count(old) == 1
        code = code.replace(old, new)
    (folder / "train.py").write_text(code)
    ps.write({"x": np.arange(COUNT, dtype=np.float32)}, folder / "x.tfrecord")
    return [sys.executable, "train.py", str(folder / "x.tfrecord"), str(folder / "storage")]


def steps(folder: Path) -> list[dict[str, Any]]:
    """What the steps saw so far, in the order of time."""
    files = sorted(folder.glob("seen-*"), key=lambda file: int(file.name.split("-")[1]))
    texts = [file.read_text() for file in files]
    return [json.loads(text) for text in texts if text.endswith("}")]


def records(lines: Iterable[dict[str, Any]], epoch: int) -> list[int]:
    return [n for line in lines if line["epoch"] == epoch for n in line["records"]]


def saved(folder: Path) -> list[Any]:
    """The checkpoints that Ray Train knows of. It notices them some time after they were reported."""
    for file in (folder / "storage").glob("*/checkpoint_manager_snapshot.json"):
        with suppress(json.JSONDecodeError):  # it is being written
            return json.loads(file.read_text())["checkpoint_results"]
    return []


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}


def test_the_program_of_the_page_sees_every_record_once_in_an_epoch(tmp_path: Path) -> None:
    """Without a cluster, and although variables of a launcher are set: Ray Train says that there is one worker."""
    command = program(tmp_path, "num_workers=0")
    env = environment(RANK="1", WORLD_SIZE="3")
    done = subprocess.run(
        command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = steps(tmp_path)
    assert {(line["rank"], line["ranks"]) for line in lines} == {(0, 1)}
    for epoch, order in enumerate(ORDERS):
        assert records(lines, epoch) == order


@contextmanager
def two_more_nodes(cluster: Any) -> Iterator[list[Any]]:
    """Nodes for the workers alone, so that the loss of one leaves the other tests' nodes."""
    added = [
        cluster.add_node(num_cpus=1, resources={"train": 1}, node_ip_address="127.0.0.1")
        for _ in range(2)
    ]
    try:
        yield added
    finally:
        for node in added:
            if node in cluster.list_all_nodes():
                cluster.remove_node(node, allow_graceful=False)


def waited_for(found: Callable[[], Any], process: subprocess.Popen[str], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = found()
        if result:
            return result
        assert process.poll() is None, process.communicate()[0][-5000:]
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"not within {seconds} seconds: {process.communicate()[0][-5000:]}")


@pytest.mark.stress
@pytest.mark.timeout(1800)
def test_one_worker_goes_on_where_two_were_when_a_node_is_lost(nodes: Any, tmp_path: Path) -> None:
    workers = "num_workers=(1, 2), resources_per_worker={'CPU': 1, 'train': 1}"
    command = program(tmp_path, workers)
    with two_more_nodes(nodes) as added:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(RAY_ADDRESS=nodes.address),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

        def waiting_worker() -> dict[str, Any] | None:
            # In step 25, which is in the middle between two checkpoints.
            found = [line for line in steps(tmp_path) if line["rank"] == 1]
            return found[24] if len(found) == 25 and len(saved(tmp_path)) == 2 else None

        lost = waited_for(waiting_worker, process, 600)
        os.kill(lost["process"], signal.SIGKILL)
        nodes.remove_node(
            next(node for node in added if node.node_id == lost["node"]), allow_graceful=False
        )
        out, _ = process.communicate(timeout=900)
        assert process.returncode == 0, out[-5000:]

    lines = steps(tmp_path)
    for line in lines:
        line["begin"] = ORDERS[line["epoch"]].index(line["records"][0])
    both = [line for line in lines if line["ranks"] == 2]
    alone = [line for line in lines if line["ranks"] == 1]
    # The last checkpoint was after step 20. Later steps were lost with the worker, and are done again.
    assert alone[0]["epoch"] == 0
    assert alone[0]["begin"] == 20 * STEP < both[-1]["begin"]
    kept = sorted(
        (line for line in both if line["begin"] < 20 * STEP), key=lambda line: line["begin"]
    )
    # Each step has the next records of the order. With two ranks, each has a half of them.
    assert [(line["rank"], line["begin"]) for line in kept] == [
        (n % 2, n * STEP // 2) for n in range(40)
    ]
    assert [line["begin"] for line in alone] == [
        *range(20 * STEP, COUNT, STEP),
        *range(0, COUNT, STEP),
    ]
    assert records(kept + alone, 0) == ORDERS[0]
    assert records(alone, 1) == ORDERS[1]
