"""Where the laws write: a folder, in memory if there is such a folder, because some formats make many files; and an object
store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.contract.format import Format
from places import ObjectPath, Place
from remote.servers.seaweed import Seaweed

MEMORY = "/dev/shm"
FAST = ("tfrecord", "parquet", "npy")
"""Over the store, the normal run has the laws of these formats, and those of all formats that take records."""


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    place = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="penstock-laws-") as folder:
        yield Path(folder)


@pytest.fixture
def objects(seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A prefix of an object store, whose options are in the environment."""
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    return ObjectPath(f"s3://{prefix}")


@pytest.fixture(params=["file", "object"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A folder of this machine, and a prefix of an object store."""
    return tmp_path if request.param == "file" else request.getfixturevalue("objects")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave most laws over the store to `make stress`."""
    for item in items:
        told = getattr(item, "callspec", None)
        if told is None or told.params.get("place") != "object":
            continue
        used = [one.info.name for one in told.params.values() if isinstance(one, Format)]
        if not set(used) <= set(FAST) and "take" not in item.name:
            item.add_marker(pytest.mark.stress)


@pytest.fixture(autouse=True)
def _folders_are_local(request: pytest.FixtureRequest) -> None:
    """Formats of folders are written to this machine only."""
    told = getattr(request.node, "callspec", None)
    if told is None or told.params.get("place") != "object":
        return
    used = [one for one in told.params.values() if isinstance(one, Format)]
    if any(fmt.info.is_folder for fmt in used):
        pytest.skip("folders are written to this machine only")
