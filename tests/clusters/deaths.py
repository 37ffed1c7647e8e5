"""Kills processes of a cluster while a verb runs on it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch


def running_of(nodes: Any) -> list[int]:
    """The processes that run a task of penstock now on this cluster, and on no other one of this machine."""
    raylets = {
        info.process.pid
        for node in nodes.list_all_nodes()
        for info in node.all_processes.get("raylet", ())
    }
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in raylets and b"ray::_run" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
    return found


@contextmanager
def killing(nodes: Any, chance: random.Random, most: int) -> Generator[list[int]]:
    """Kill up to `most` running workers at random moments during the block. The value lists those that were killed."""
    done, killed = threading.Event(), list[int]()

    def run() -> None:
        while len(killed) < most and not done.wait(chance.uniform(0.0, 0.2)):
            if running := running_of(nodes):
                pid = chance.choice(running)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


def kill_driver(program: str, nodes: Any, after: float) -> bool:
    """Run a program that is connected to the cluster, and kill it `after` seconds from when it began its work, which it
    says in a line. Return whether it was still running."""
    code = f"import ray\nray.init(address={nodes.address!r}, log_to_driver=False)\nprint('begun', flush=True)\n{program}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"begun\n"
        try:
            driver.wait(after)
        except subprocess.TimeoutExpired:
            driver.kill()
            return True
        assert driver.returncode == 0
        return False


def replace_node(nodes: Any) -> None:
    """Kill the node that is not the head, without a warning, and start another one. Ray would set a handler of signals for
    it, which only the main thread may."""
    (other,) = [node for node in nodes.list_all_nodes() if node is not nodes.head_node]
    nodes.remove_node(other, allow_graceful=False)
    with patch("ray._private.utils.set_sigterm_handler"):
        nodes.add_node(num_cpus=1, node_ip_address="127.0.0.1")
