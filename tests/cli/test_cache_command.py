"""`penstock cache` shows and clears a folder with blocks of objects."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run

from penstock import _core
from penstock.storage._cache_files import Block, BlockFiles, Kept


def filled(folder: Path) -> int:
    """Keep three blocks, and return their bytes on disk."""
    files = BlockFiles(str(folder), 64 << 20)
    data = _core.Buffer.from_bytes(b"x" * 100_000)
    for key, number in (
        (b"s3://b/f/x\0more", 0),
        (b"s3://b/f/x\0more", 1),
        (b"https://h/y\0more", 0),
    ):
        assert files.write(Block(key, number, len(data)), data, 0) is Kept.YES
    return sum(path.stat().st_size for path in folder.glob("[!.]*"))


def test_a_cache_is_shown_and_cleared(tmp_path: Path) -> None:
    num_bytes = filled(tmp_path)
    shown = run("cache", tmp_path)
    assert shown.status == 0
    assert "s3://b/f" in shown.out and "https://h" in shown.out and "300 kB" in shown.out
    document = run("cache", tmp_path, "--json").document
    assert (document["folder"], document["num_blocks"]) == (str(tmp_path), 3)
    assert document["num_bytes"] == num_bytes
    assert document["freed_bytes"] is None
    first = document["folders"][0]
    assert (first["address"], first["num_objects"], first["num_blocks"]) == ("s3://b/f", 1, 2)
    (tmp_path / "notes.txt").write_text("stays")
    assert "removed 300 kB" in run("cache", tmp_path, "--clear").out
    assert run("cache", tmp_path, "--json", "--clear").document["freed_bytes"] == 0
    assert run("cache", tmp_path, "--json").document["num_blocks"] == 0
    assert (tmp_path / "notes.txt").exists()


def test_without_a_folder_it_is_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert run("cache", "--json").document["folder"] == str(tmp_path / "penstock" / "blocks")
    assert not (tmp_path / "penstock").exists()
    filled(tmp_path / "penstock" / "blocks")
    assert run("cache", "--json").document["num_blocks"] == 3
