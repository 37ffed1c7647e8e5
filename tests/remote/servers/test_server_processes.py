"""Server programs end with their block and with their starter, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reading import ROOT
from remote.servers.processes import ServerError, program, running

STARTER = """
import sys, time
from pathlib import Path
from remote.servers.processes import running
with running(["sleep", "60"], folder=Path(sys.argv[1]), ready=lambda: True) as server:
    print(server.pid, flush=True)
    time.sleep(60)
"""


def is_alive(process: int) -> bool:
    """Whether it runs. What has ended and was not waited for does not."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(") ")[2][0] not in "ZX"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_servers_end_with_their_starter(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    ) as starter:
        assert starter.stdout
        server = int(starter.stdout.readline())
        assert is_alive(server)
        starter.send_signal(number)
        starter.wait()
    until = time.monotonic() + 20
    while is_alive(server) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_alive(server)


def test_servers_end_with_their_block(tmp_path: Path) -> None:
    class OfTheBlock(Exception):
        pass

    with (
        pytest.raises(OfTheBlock),
        running(["sleep", "60"], folder=tmp_path, ready=lambda: True) as server,
    ):
        assert is_alive(server.pid)
        raise OfTheBlock
    assert server.returncode == -signal.SIGKILL


def test_a_server_that_stops_shows_its_log(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo port is taken >&2; exit 3"]
    with (
        pytest.raises(ServerError, match="exit status 3; the end of its log:\nport is taken"),
        running(command, folder=tmp_path, ready=lambda: False),
    ):
        pass


def test_servers_get_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the user")
    out = tmp_path / "server.log"
    with running(
        ["sh", "-c", "env; sleep 60"], folder=tmp_path, ready=lambda: b"PATH=" in out.read_bytes()
    ):
        pass
    assert b"of the user" not in out.read_bytes()


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(ServerError, match="no-such-server is not installed: run make"):
        program("no-such-server", "run make")
