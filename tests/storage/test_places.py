"""What verbs ask of any storage: this machine, memory, an object store, and a storage with nothing but the defaults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import penstock as ps
from penstock.storage import LocalStorage, MemoryStorage, Sink, Source, Storage
from penstock.storage.objects import ObjectStorage
from remote.servers.seaweed import Seaweed


class Plain(Storage):
    """A storage of a user, with what is required and no more."""

    def __init__(self) -> None:
        self.memory = MemoryStorage()

    def source(self, path: str, *, mmap: bool = False) -> Source:
        return self.memory.source(path)

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        return self.memory.sink(path, overwrite=overwrite)

    def list(self, folder: str) -> list[str]:
        return self.memory.list(folder)

    def exists(self, path: str) -> bool:
        return self.memory.exists(path)


@pytest.fixture(params=["local", "memory", "objects", "plain"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    """A storage and an empty folder in it."""
    if request.param == "local":
        return LocalStorage(), str(tmp_path)
    if request.param == "objects":
        seaweed: Seaweed = request.getfixturevalue("seaweed")
        prefix: str = request.getfixturevalue("prefix")
        return ObjectStorage(seaweed.options()), f"s3://{prefix}"
    return (MemoryStorage() if request.param == "memory" else Plain()), "folder"


def test_a_small_file_is_as_it_is_now_and_not_as_it_was(place: tuple[Storage, str]) -> None:
    storage, folder = place
    path = f"{folder}/a"
    assert storage.load(path, 10) is None
    assert storage.state(path) is None
    storage.save(path, b"one")
    assert storage.load(path, 10) == b"one"
    first = storage.state(path)
    storage.save(path, b"three")
    assert storage.load(path, 10) == b"three"
    assert storage.load(path, 2) == b"th"
    assert storage.state(path) != first
    assert storage.state(path) == storage.state(path)


def test_an_empty_file_is_a_file(place: tuple[Storage, str]) -> None:
    storage, folder = place
    storage.save(f"{folder}/a", b"")
    assert storage.load(f"{folder}/a", 10) == b""
    assert storage.state(f"{folder}/a") is not None


def test_a_file_is_created_once(place: tuple[Storage, str]) -> None:
    storage, folder = place
    storage.save(f"{folder}/a", b"mine", overwrite=False)
    with pytest.raises(FileExistsError):
        storage.save(f"{folder}/a", b"other", overwrite=False)
    assert storage.load(f"{folder}/a", 10) == b"mine"


def test_a_removed_file_is_gone(place: tuple[Storage, str]) -> None:
    storage, folder = place
    storage.save(f"{folder}/a", b"one")
    if isinstance(storage, Plain):
        with pytest.raises(ps.UnsupportedError, match="removes no files"):
            storage.remove(f"{folder}/a")
        return
    assert storage.list(folder) == [f"{folder}/a"]
    for _ in range(2):  # what is not there is no error
        storage.remove(f"{folder}/a")
    assert storage.load(f"{folder}/a", 10) is None
    assert storage.list(folder) == []


def test_own_files_are_listed_apart(place: tuple[Storage, str]) -> None:
    storage, folder = place
    for name in ("a", ".a.penstock", ".b", "sub/.c.penstock"):
        if name.startswith("sub/") and isinstance(storage, LocalStorage):
            os.mkdir(f"{folder}/sub")
        storage.save(f"{folder}/{name}", b"x")
    assert f"{folder}/.a.penstock" not in storage.list(folder)
    found = storage.own_files(folder)
    assert found == ([] if isinstance(storage, Plain) else [f"{folder}/.a.penstock"])


def test_only_this_machine_writes_folders(place: tuple[Storage, str]) -> None:
    storage, folder = place
    if isinstance(storage, LocalStorage):
        storage.folder_sink(f"{folder}/new").abort()
        return
    with pytest.raises(ps.UnsupportedError) as refused:
        storage.folder_sink(f"{folder}/new")
    assert refused.value.hint is not None


def test_closed_files_stay_closed_where_there_are_permissions(
    place: tuple[Storage, str], tmp_path: Path
) -> None:
    storage, folder = place
    closed = tmp_path / "closed"
    closed.touch(0o600)
    storage.no_more_open_than([str(closed)]).save(f"{folder}/a", b"x")
    storage.sink_for(f"{folder}/b", str(closed)).commit()
    if isinstance(storage, LocalStorage):
        assert [os.stat(f"{folder}/{name}").st_mode & 0o777 for name in "ab"] == [0o600, 0o600]
    assert storage.load(f"{folder}/a", 10) == b"x"
