"""Files that are made from private files, or next to them, are private from their first moment, in every format."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from held import FILES, WRITABLE, small_table

import penstock as ps
from penstock.contract.format import Format
from penstock.errors import PenstockError

WATCHED = ("fsync", "close", "rename", "replace", "link", "unlink", "mkdir", "rmdir", "open")
per_format = pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)
per_file_format = pytest.mark.parametrize("fmt", FILES, ids=lambda fmt: fmt.info.name)


class Watch:
    """Checks all files of a folder before and after each system call that changes one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open_to_others: set[str] = set()
        self.num_looks = 0

    def look(self) -> None:
        self.num_looks += 1
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    found = os.lstat(path)
                except FileNotFoundError:
                    continue
                # The lock file is not private, because it would lock out other users for ever. It
                # is empty.
                if found.st_mode & 0o077 and not (".lock" in name and not found.st_size):
                    self.open_to_others.add(f"{os.path.relpath(path, self.root)} {found.st_mode:o}")

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            self.look()
            done = call(*args, **options)
            self.look()
            return done

        return watched


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watch = Watch(tmp_path)
    before = os.umask(0o022)
    try:
        yield watch
    finally:
        os.umask(before)


def started(fmt: Format, folder: Path, name: str = "a") -> str:
    """A private shard of this format."""
    path = ps.write(
        small_table(fmt), str(folder / name) + fmt.info.extensions[0], format=fmt.info.name
    ).paths[0]
    close(folder)
    return path


def close(folder: Path) -> None:
    for inside, folders, names in os.walk(folder):
        for name in names:
            os.chmod(os.path.join(inside, name), 0o600)
        for name in folders:
            os.chmod(os.path.join(inside, name), 0o700)


def watched(watch: Watch, patch: pytest.MonkeyPatch, run: Callable[[], Any]) -> None:
    with patch.context() as changed:
        for name in WATCHED:
            changed.setattr(os, name, watch.around(getattr(os, name)))
        run()
    watch.look()
    assert not watch.open_to_others, sorted(watch.open_to_others)
    assert watch.num_looks > 4


@per_format
@pytest.mark.parametrize("cut", [{}, {"shard_records": 7}, {"num_shards": 2}], ids=str)
def test_replacements_of_private_shards_are_private(
    private: Watch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fmt: Format,
    cut: dict[str, int],
) -> None:
    path, table = str(tmp_path / "a") + fmt.info.extensions[0], small_table(fmt)
    how: dict[str, Any] = {"format": fmt.info.name, "overwrite": True, **cut}
    ps.write(table, path, **how)
    close(tmp_path)
    # A stream, which is first written to a temporary file if its records must be counted.
    stream = iter(table.to_batches(max_chunksize=5))
    watched(private, monkeypatch, lambda: ps.write(stream, path, **how))


@per_format
@pytest.mark.parametrize("cut", [{}, {"shard_records": 7}, {"shard_bytes": 100}], ids=str)
def test_a_conversion_of_a_private_file_is_private(
    private: Watch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fmt: Format,
    cut: dict[str, int],
) -> None:
    source = started(fmt, tmp_path)
    for name in {"msgpack", fmt.info.name}:
        target = str(tmp_path / f"{name}-made")
        watched(
            private,
            monkeypatch,
            lambda target=target, name=name: ps.convert(source, target, format=name, **cut),
        )


@per_format
def test_files_that_replace_private_files_in_a_conversion_are_private(
    private: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: Format
) -> None:
    (tmp_path / "public").mkdir()
    (tmp_path / "private").mkdir()
    source = started(fmt, tmp_path / "public")
    started(fmt, tmp_path / "private")
    for one in (tmp_path / "public").rglob("*"):
        one.chmod(0o755 if one.is_dir() else 0o644)
    private.root = tmp_path / "private"
    target = str(tmp_path / "private" / "a") + fmt.info.extensions[0]
    how: dict[str, Any] = {"format": fmt.info.name, "overwrite": True}
    watched(private, monkeypatch, lambda: ps.convert(source, target, **how))


@per_format
def test_files_that_verbs_write_from_private_files_are_private(
    private: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: Format
) -> None:
    path = started(fmt, tmp_path)
    count, values = len(ps.open(path)), {}
    values = {"more": list(range(count))}
    new = small_table(fmt).slice(0, 3)

    def run() -> None:
        verbs: list[Callable[[], Any]] = [
            lambda: ps.index(path),
            lambda: ps.append(new, path),
            lambda: ps.repair(path, into=tmp_path / f"repaired{fmt.info.extensions[0]}"),
            lambda: ps.add_fields(path, values),
            lambda: ps.bake_fields(path, into=tmp_path / f"baked{fmt.info.extensions[0]}"),
            lambda: ps.bake_fields(path, in_place=True),
            lambda: ps.rename_fields(path, {"more": "less"}, in_place=True),
            lambda: ps.drop_fields(path, ["less"], into=tmp_path / f"d{fmt.info.extensions[0]}"),
        ]
        done = 0
        for verb in verbs:
            try:
                verb()
                done += 1
            except (PenstockError, ValueError):
                continue  # this format lacks it
        assert done >= 2

    watched(private, monkeypatch, run)


@per_file_format
def test_copies_in_a_cache(
    private: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: Format
) -> None:
    path, cache = started(fmt, tmp_path), tmp_path / "cache"

    def run() -> None:
        loader = ps.Loader(ps.open(path), 4, cache=str(cache))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (cache.is_dir() and os.listdir(cache)):
            list(loader)
            time.sleep(0.01)
        list(loader)
        loader.close() if hasattr(loader, "close") else None

    watched(private, monkeypatch, run)
    assert cache.stat().st_mode & 0o077 == 0
