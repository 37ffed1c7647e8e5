"""Fixtures for all tests: the location of files from other projects, and checks that nothing is written next to
them."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from reading import SHARED, shared_path

# The servers that tests read from and write to, each started when it is first asked for.
pytest_plugins = ["remote.servers.fixtures"]

# Output is compared as if it were piped, whatever the width of the terminal.
os.environ.pop("COLUMNS", None)
# Deadlines would depend on the load of the machine. The seed is printed if a test fails.
settings.register_profile("tests", deadline=None, print_blob=True)
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Spare the cycle collector the tests and all that they imported: a million objects, a sixth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def golden() -> Path:
    """Files with known content, made by the reference program of each format."""
    return shared_path("specs", "golden")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Files that other projects publish."""
    return shared_path("corpus")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep penstock's cache of indexes out of the home folder of the user who runs the tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv("PENSTOCK_INDEX", raising=False)


@pytest.fixture
def index_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let reading store indexes next to the data, for tests of such indexes."""
    monkeypatch.setenv("PENSTOCK_INDEX", "beside")


@pytest.fixture
def index_folder(tmp_path: Path) -> str:
    """A folder for sidecars."""
    folder = tmp_path / "indexes"
    folder.mkdir()
    return str(folder)


@pytest.fixture(autouse=True)
def no_threads_left() -> Iterator[None]:
    """Every test must end with the threads with which it began; the last one may still be ending."""
    yield
    ours = [t for t in threading.enumerate() if t.name.startswith("penstock-")]
    for thread in ours:
        thread.join(1)
    left = [thread.name for thread in ours if thread.is_alive()]
    assert not left, f"threads left behind: {left}"


@pytest.fixture(scope="session", autouse=True)
def _ctrl_c_interrupts() -> None:
    """A shell that starts the tests in the background lets them ignore Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def nothing_beside_shared() -> Iterator[None]:
    """No test may leave a sidecar next to files that penstock did not write."""
    yield
    found = sorted(SHARED.rglob("*.penstock")) if SHARED.exists() else []
    assert not found, f"sidecars were written beside {SHARED}: {found[:3]}"
