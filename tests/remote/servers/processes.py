"""Starts server programs for tests and benchmarks, waits until they answer, and ends them with their starter."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
HOST = "127.0.0.1"
START_SECONDS = 30.0
# Below the ports that systems give to outgoing connections, and so are those 10,000 higher.
FIRST_PORT, LAST_PORT = 12_000, 22_000
# Reads until the starter has gone, even by kill -9, and then ends the server's process group.
WATCH = 'read -r _; kill -9 "-$1" 2>/dev/null; shift; rm -f -- "$@"'


class ServerError(RuntimeError):
    """A server program is missing or did not start."""


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens. Random, so that test processes side by side get different ones."""
    chosen: list[int] = []
    with_luck = random.SystemRandom()
    while len(chosen) < count:
        port = with_luck.randint(FIRST_PORT, LAST_PORT)
        if port not in chosen and _is_free(port):
            chosen.append(port)
    return chosen


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
        return True


def program(name: str, hint: str) -> str:
    """The path of a server program: beside this Python, on PATH, or where Debian puts servers."""
    places = (str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin")
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise ServerError(f"{name} is not installed: {hint}")
    return found


def is_open(port: int) -> bool:
    """Whether something accepts connections on this port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def running(
    command: Sequence[str],
    *,
    folder: Path,
    ready: Callable[[], bool],
    environment: dict[str, str] | None = None,
    leaves: Sequence[str] = (),
) -> Generator[subprocess.Popen[bytes]]:
    """Run a server until the block ends.

    Its output goes to `server.log` in the folder. It gets nothing of the caller's environment but
    PATH. It ends with the caller, however that ends, and Ctrl-C in a terminal does not reach it
    before the block has ended. Files that it `leaves` elsewhere are removed.

    Raises:
        ServerError: It stopped, or was not ready after 30 s; with the end of its log.
    """
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(folder), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    watcher = subprocess.Popen(
        ["/bin/sh", "-c", WATCH, "watch", str(server.pid), *leaves],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _wait(server, ready, command[0], log)
        yield server
    finally:
        watcher.kill()
        watcher.communicate()
        _end(server)
        for left in leaves:
            Path(left).unlink(missing_ok=True)


def _wait(server: subprocess.Popen[bytes], ready: Callable[[], bool], name: str, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while not ready():
        stopped = server.poll()
        if stopped is not None or time.monotonic() > until:
            what = "did not answer" if stopped is None else f"stopped with exit status {stopped}"
            end = log.read_bytes()[-2000:].decode("utf-8", "replace")
            raise ServerError(f"{name} {what}; the end of its log:\n{end}")
        time.sleep(0.02)


def _end(server: subprocess.Popen[bytes]) -> None:
    # What these servers hold is thrown away, so nothing is lost by not asking them to stop.
    try:
        os.killpg(server.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has stopped by itself
    server.wait()


def tried(start: Callable[[], T], tries: int = 3) -> T:
    """Call `start` again if it fails, since another process may have taken one of its ports."""
    for _ in range(tries - 1):
        try:
            return start()
        except ServerError:
            continue
    return start()
