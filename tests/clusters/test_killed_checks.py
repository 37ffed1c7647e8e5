"""Ctrl-C and kill -9 during verify, index and repair on a cluster: workers, nodes and the driver."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_sets import damage, files_in, shards_in
from drive_checks import result

import penstock as ps

DRIVER = Path(__file__).with_name("drive_checks.py")
ONE_CORE = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
PATIENCE = 120.0
"""Seconds for what takes a few on a quiet machine."""


def drive(verb: str, nodes: Any, folder: Path, seconds: float = 0.05) -> subprocess.Popen[str]:
    """Start a driver in a process of its own."""
    (folder / "notes").mkdir(exist_ok=True)
    words = [verb, nodes.address, str(folder), str(folder / "notes"), str(seconds)]
    return subprocess.Popen(
        [sys.executable, str(DRIVER), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def workers(folder: Path) -> list[int]:
    """The processes that have worked on a folder."""
    return [int(note.name) for note in (folder / "notes").iterdir()]


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_ctrl_c_cancels_the_tasks(nodes: Any, tmp_path: Path) -> None:
    shards_in(tmp_path / "set")
    driver = drive("verify", nodes, tmp_path, seconds=500)
    until(lambda: workers(tmp_path))
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=PATIENCE)
    assert driver.returncode != 0
    assert "KeyboardInterrupt" in errors
    until(lambda: not any(map(is_running, workers(tmp_path))))


def kill_a_worker(nodes: Any, folder: Path, driver: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.kill(random.choice(workers(folder)), signal.SIGKILL)


def kill_the_driver(nodes: Any, folder: Path, driver: subprocess.Popen[str]) -> None:
    driver.kill()


def kill_a_node(nodes: Any, folder: Path, driver: subprocess.Popen[str]) -> None:
    node = next(iter(nodes.worker_nodes))
    nodes.remove_node(node, allow_graceful=False)
    nodes.add_node(**ONE_CORE)


KILLS = [kill_a_worker, kill_a_node, kill_the_driver]
VERBS = ["repair", "index", "verify"]


def survives(nodes: Any, folder: Path, verb: str, kill: Any, moment: float | None) -> None:
    """Kill something at a moment after the first task began, or when the first file is finished, and compare what is
    there in the end."""
    folder.mkdir()
    paths = shards_in(folder / "set")
    if verb != "index":
        damage(paths)
    (folder / "here").mkdir()
    expected = result(verb, folder / "set", folder / "here")
    first = drive(verb, nodes, folder)
    until(lambda: workers(folder) or first.poll() is not None)
    if moment is None:
        until(lambda: finished_files(folder / "there" / "new"))
    else:
        time.sleep(moment)
    kill(nodes, folder, first)
    driver: subprocess.Popen[str] | None = first
    finished = {}
    if kill is kill_the_driver:
        first.communicate(timeout=PATIENCE)
        until(lambda: not any(map(is_running, workers(folder))))
        if verb == "repair" and first.returncode:
            finished = finished_files(folder / "there" / "new")
            assert finished or moment is not None
        # Killed while it left the cluster, it has its result, and a second repair would find its files there.
        driver = None if (folder / "result.json").exists() else drive(verb, nodes, folder)
    if driver is not None:
        _, errors = driver.communicate(timeout=3 * PATIENCE)
        assert driver.returncode == 0, errors
    assert json.loads((folder / "result.json").read_text()) == expected
    for made in ("new", "indexes"):
        mine, its = files_in(folder / "here" / made), files_in(folder / "there" / made)
        assert its.keys() == mine.keys()  # no attempts, notes or locks
        if made == "new":
            assert its == mine
    assert finished == {path: state_of(path) for path in finished}


def state_of(path: Path) -> tuple[int, int]:
    told = path.stat()
    return told.st_ino, told.st_mtime_ns


def finished_files(folder: Path) -> dict[Path, tuple[int, int]]:
    """The new files whose tasks have noted that they are done."""
    if not folder.exists():
        return {}
    notes = [json.loads(path.read_text()) for path in folder.glob(".penstock-repair-*.json")]
    done = [folder / Path(note["path"]).name for note in notes if note["state"] is not None]
    return {path: state_of(path) for path in done}


@pytest.mark.parametrize(("verb", "kill"), [*zip(VERBS, KILLS, strict=True)])
def test_kills_change_nothing(nodes: Any, tmp_path: Path, verb: str, kill: Any) -> None:
    survives(nodes, tmp_path / "set", verb, kill, 0.3)


@pytest.mark.stress
@pytest.mark.timeout(7200)
def test_kills_at_any_moment_change_nothing(nodes: Any, tmp_path: Path) -> None:
    chosen = random.Random(36)
    for number in range(50):
        verb, kill, moment = chosen.choice(VERBS), chosen.choice(KILLS), chosen.uniform(0, 2.5)
        print(number, verb, kill.__name__, moment)
        survives(nodes, tmp_path / str(number), verb, kill, moment)


def test_repair_goes_on_where_a_killed_driver_was(nodes: Any, tmp_path: Path) -> None:
    survives(nodes, tmp_path / "set", "repair", kill_the_driver, None)


def test_a_worker_needs_no_more_memory_than_one_thread(nodes: Any, tmp_path: Path) -> None:
    import ray
    import worker_tasks

    from penstock.ray import Cluster

    data = {"blob": [os.urandom(100_000) for _ in range(600)]}
    made = ps.write(data, str(tmp_path / "x.tfrecord"), num_shards=2)
    small = list(ps.write({"blob": [b"x"] * 9}, str(tmp_path / "small.tfrecord")).paths)
    # What is imported at the first use is not counted.
    program = (
        f"import worker_tasks; worker_tasks.growth_of({small!r}, 1)\n"
        f"print(worker_tasks.growth_of({list(made.paths)!r}, 1))"
    )
    alone = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, cwd=DRIVER.parent
    )
    own = Cluster(shared_paths=True)
    look, use = ray.remote(worker_tasks.memory), ray.remote(worker_tasks.growth_of)
    ray.get([use.remote(small, 1) for _ in range(8)])
    before = {pid: now for pid, now, _ in ray.get([look.remote() for _ in range(8)])}
    ps.verify(made.paths, on=own)
    ps.stats(made.paths, on=own)
    after = {pid: most for pid, _, most in ray.get([look.remote() for _ in range(8)])}
    grown = [after[pid] - now for pid, now in before.items() if pid in after]
    assert grown
    assert max(grown) <= int(alone.stdout) + (50 << 20)
