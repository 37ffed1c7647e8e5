"""`--on ray`, and on="ray://…": a process of its own that connects to a cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cluster_sets import damage, shards_in

import penstock as ps

PATIENCE = 120.0


def run(program: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, *program],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=2 * PATIENCE,
    )


def test_verify_and_stats_print_the_same(nodes: Any, tmp_path: Path) -> None:
    paths = [path for path in shards_in(tmp_path / "set") if path.endswith(".tfrecord")]
    for command in ("stats", "verify"):
        words = ["-m", "penstock", command, "--json", *paths]
        here = run(words)
        there = run([*words, "--on", "ray"], RAY_ADDRESS=nodes.address)
        assert json.loads(there.stdout) == json.loads(here.stdout), there.stderr
        assert there.returncode == here.returncode
        damage(paths)


def test_diff_prints_the_same(nodes: Any, tmp_path: Path) -> None:
    for name, ids in (("a", range(9)), ("b", [0, 1, 7, 3, 4, 5, 6, 7, 8])):
        ps.write({"id": ids}, str(tmp_path / f"{name}-{{shard}}.tfrecord"), num_shards=3)
    words = ["-m", "penstock", "diff", "--json", *(f"{tmp_path}/{name}-*" for name in "ab")]
    here = run(words)
    there = run([*words, "--on", "ray"], RAY_ADDRESS=nodes.address)
    assert json.loads(there.stdout) == json.loads(here.stdout), there.stderr
    assert (there.returncode, here.returncode) == (1, 1)


def test_messages_of_ray_are_not_part_of_the_output(nodes: Any, tmp_path: Path) -> None:
    path = ps.write({"id": range(9)}, str(tmp_path / "poison.tfrecord")).paths[0]
    program = (
        "import sys, time, worker_tasks, penstock as ps\n"
        "from penstock.cli.program import program\n"
        "verify = ps.verify\n"
        "def deadly(*a, **k):\n"
        "    found = verify(*a, **{**k, 'storage': worker_tasks.Deadly(), 'storage_options': None})\n"
        "    time.sleep(1)\n"
        "    return found\n"
        "ps.verify = deadly\n"
        "program(sys.argv[1:])"
    )
    words = ["verify", "--json", "--on", "ray", path]
    done = run(
        ["-c", program, *words],
        RAY_ADDRESS=nodes.address,
        PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]),
    )
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["kind"] == "unchecked"
    assert done.returncode == 1
    assert "A worker died" in done.stderr


@pytest.fixture
def client_port(nodes: Any) -> Iterator[int]:
    """A server of Ray's client."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    words = ["-m", "ray.util.client.server", "--address", nodes.address, "--host", "127.0.0.1"]
    # The server starts one more process for each client, and gives it 30 seconds, too few on a busy machine.
    patient = {
        "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "180",
        "TIMEOUT_FOR_SPECIFIC_SERVER_S": "180",
    }
    server = subprocess.Popen(
        [sys.executable, *words, "--port", str(port), "--mode", "proxy"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **patient},
    )
    until = time.monotonic() + PATIENCE
    while not is_open(port):
        assert server.poll() is None
        assert time.monotonic() < until
        time.sleep(0.1)
    yield port
    server.terminate()
    server.wait()


def is_open(port: int) -> bool:
    with suppress(OSError), closing(socket.create_connection(("127.0.0.1", port), 1)):
        return True
    return False


def test_a_client_elsewhere_runs_verbs(client_port: int, tmp_path: Path) -> None:
    shards_in(tmp_path)
    program = f"""
import penstock as ps
from penstock.ray import Cluster
address, source = "ray://127.0.0.1:{client_port}", "{tmp_path}/x-*.tfrecord"
assert ps.verify(source, on=Cluster(address, shared_paths=True)) == ps.verify(source)
try:
    ps.verify(source, on=address)
except ps.UnsupportedError as error:
    assert "shared_paths=True" in error.hint
    print("refused")
"""
    done = run(["-c", program])
    if "Starting Ray client server failed" in done.stderr:
        # On a busy machine, Ray's process for this client once ended before it had begun. No line of penstock ran in it.
        done = run(["-c", program])
    assert done.stdout.strip() == "refused", done.stderr
