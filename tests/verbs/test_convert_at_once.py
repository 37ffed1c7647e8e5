"""Two simultaneous conversions or repairs to one target, killed ones, and targets that are devices."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from reading import index_of

WAITING = """
import sys
import penstock as ps
def tell(*done):
    print("begun", flush=True)
    sys.stdin.readline()
ps.convert(sys.argv[1], sys.argv[2], progress=tell, overwrite=True, **eval(sys.argv[3]))
"""

REPAIRING = """
import os, signal, sys
import penstock as ps
def tell(*done):
    if any(name.endswith(".penstock-tmp") for name in os.listdir(os.path.dirname(sys.argv[1]))):
        if len(sys.argv) < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        print("begun", flush=True)
        sys.stdin.readline()
how = {"into": sys.argv[2]} if len(sys.argv) > 2 else {"in_place": True}
ps.repair(sys.argv[1], progress=tell, **how)
"""

KILLED = """
import os, signal, sys
import penstock as ps
replace, left = os.replace, int(sys.argv[4])
def replace_and_die(old, new):
    global left
    replace(old, new)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
os.replace = replace_and_die
ps.convert(sys.argv[1], sys.argv[2], **eval(sys.argv[3]))
"""


def source_of(folder: Path, count: int = 3000) -> Path:
    path = folder / "in.tfrecord"
    ps.write({"id": range(count), "x": [b"some bytes"] * count}, path, overwrite=True)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def waiting(
    source: Path, target: Path | str, how: dict[str, Any], program: str = WAITING
) -> Generator[subprocess.Popen[str]]:
    """A conversion or repair that has begun to write, and that continues when its standard input is closed."""
    words = [sys.executable, "-c", program, str(source), str(target), repr(how)]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        yield child
    finally:
        child.communicate()


WAYS: list[dict[str, Any]] = [{"num_shards": 6}, {"shard_bytes": 20_000}, {}]


@pytest.mark.parametrize("how", WAYS, ids=["shards", "bytes", "one"])
def test_a_second_conversion_into_a_target_is_refused_and_touches_nothing(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    source, out = source_of(tmp_path), tmp_path / "out"
    out.mkdir()
    ps.convert(source, out / "o.tfrecord", **how)
    expected = contents(out)
    words = ["penstock", "convert", source, out / "o.tfrecord", "--columns", "id", "--overwrite"]
    for name, value in how.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    with waiting(source, out / "o.tfrecord", how) as first:
        before = contents(out)
        second = subprocess.run(
            [sys.executable, "-m", *words], capture_output=True, text=True, check=False
        )
        assert contents(out) == before
    assert second.returncode in (1, 2)
    assert "o.tfrecord: another conversion is writing it" in second.stderr
    assert first.returncode == 0
    assert contents(out) == expected


@pytest.mark.parametrize("how", WAYS, ids=["shards", "bytes", "one"])
def test_a_killed_conversion_leaves_no_lock(tmp_path: Path, how: dict[str, Any]) -> None:
    source, out = source_of(tmp_path), tmp_path / "out"
    out.mkdir()
    with waiting(source, out / "o.tfrecord", how) as first:
        first.kill()
    assert contents(out)
    ps.convert(source, out / "o.tfrecord", columns=["id"], **how)
    left = contents(out)
    data = [name for name in left if not name.startswith(".")]
    assert left.keys() == {*data, *(index_of(name).name for name in data)}
    (tmp_path / "whole").mkdir()
    ps.convert(source, tmp_path / "whole" / "o.tfrecord", columns=["id"], **how)
    assert left == contents(tmp_path / "whole")


def test_conversions_into_two_targets_of_a_folder_run_in_parallel(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    with waiting(source, tmp_path / "a.parquet", {}) as first:
        ps.convert(source, tmp_path / "b.parquet")
    assert first.returncode == 0
    assert sorted(contents(tmp_path)) == [
        ".in.tfrecord.penstock",
        "a.parquet",
        "b.parquet",
        "in.tfrecord",
    ]


def test_only_one_conversion_at_a_time_may_write_into_a_folder(tmp_path: Path) -> None:
    source, out = source_of(tmp_path), f"{tmp_path}/out/"
    with (
        waiting(source, out, {"format": "parquet"}),
        pytest.raises(BlockingIOError, match="another conversion"),
    ):
        ps.convert(source, out, format="arrow")
    assert os.listdir(out) == ["in.parquet"]
    with pytest.raises(ps.SchemaError):
        ps.convert(source, f"{tmp_path}/none/", format="parquet", columns=["no such"])
    assert not (tmp_path / "none").exists()


def test_a_folder_without_locks_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(fd: int, operation: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    source = source_of(tmp_path)
    monkeypatch.setattr(fcntl, "flock", flock)
    assert ps.convert(source, tmp_path / "a.parquet").num_records == 3000
    assert sorted(contents(tmp_path)) == [".in.tfrecord.penstock", "a.parquet", "in.tfrecord"]


NAMES = ["o.tfrecord", "o-{shard:03d}.tfrecord"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("calls", [1, 2, 7, -1])
def test_shards_by_bytes_get_all_their_names_after_a_kill_between_two_renames(
    tmp_path: Path, name: str, calls: int
) -> None:
    source, whole, cut = source_of(tmp_path), tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    how = {"shard_bytes": 20_000}
    made = ps.convert(source, whole / name, **how)
    expected = contents(whole)
    assert len(made.paths) > 5
    (cut / "o-mine.tfrecord").write_bytes(b"mine")
    # -1: killed after the last rename. Each shard and each index is renamed once.
    left = len(expected) if calls < 0 else calls
    words = [sys.executable, "-c", KILLED, str(source), str(cut / name), repr(how), str(left)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert any(path.suffix == ".tfrecord" and "mine" not in path.name for path in cut.iterdir())
    seen: list[int] = []
    again = ps.convert(source, cut / name, progress=lambda done, *_: seen.append(done), **how)
    assert seen[-1] == again.num_records == made.num_records == 3000
    assert again.num_bytes == made.num_bytes
    assert contents(cut) == {**expected, "o-mine.tfrecord": b"mine"}


@pytest.mark.parametrize("name", NAMES)
def test_shards_by_bytes_replace_nothing_that_was_there(tmp_path: Path, name: str) -> None:
    source, out = source_of(tmp_path), tmp_path / "out"
    out.mkdir()
    ps.convert(source, out / name, shard_bytes=20_000)
    made = sorted(path for path in out.iterdir() if path.suffix == ".tfrecord")
    for path in out.iterdir():
        if path != made[3]:
            path.unlink()
    made[3].write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        ps.convert(source, out / name, shard_bytes=20_000)
    assert contents(out) == {made[3].name: b"mine"}


@pytest.mark.parametrize("how", WAYS, ids=["shards", "bytes", "one"])
def test_a_pipe_is_not_replaced_by_a_file(tmp_path: Path, how: dict[str, Any]) -> None:
    source, target = source_of(tmp_path), tmp_path / "p.parquet"
    first = ps.convert(source, target, **how).paths[0]
    for path in tmp_path.glob("p*.parquet"):
        path.unlink()
    os.mkfifo(first)
    with pytest.raises(ps.UnsupportedError, match="a pipe or a device"):
        ps.convert(source, target, overwrite=True, **how)
    assert Path(first).is_fifo()
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["in.tfrecord", ".in.tfrecord.penstock", os.path.basename(first)]
    )


def damaged(folder: Path) -> Path:
    path = folder / "x.tfrecord"
    ps.write({"id": range(3000)}, path, index=False)
    data = bytearray(path.read_bytes())
    data[40_000:40_099] = bytes(99)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("is_link", [False, True])
def test_a_repair_removes_the_files_of_a_killed_repair(tmp_path: Path, is_link: bool) -> None:
    (tmp_path / "data").mkdir()
    path = name = damaged(tmp_path / "data")
    path.chmod(0o600)
    if is_link:
        name = tmp_path / "link.tfrecord"
        name.symlink_to(path)
    before = path.read_bytes()
    killed = subprocess.run([sys.executable, "-c", REPAIRING, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    left = [found for found in path.parent.iterdir() if found != path and "lock" not in found.name]
    assert left
    assert all(found.stat().st_mode & 0o777 == 0o600 for found in left)
    # Another process may be writing it.
    other = path.parent / ".x.tfrecord.0123456789ab.penstock-tmp"
    other.touch()
    report = ps.repair(name, in_place=True, index=False)
    assert 2900 < report.num_records < 3000
    assert sorted(os.listdir(path.parent)) == [other.name, "x.tfrecord"]
    assert ps.verify(path).num_records == report.num_records
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_second_repair_into_a_file_is_refused(tmp_path: Path) -> None:
    source, target = damaged(tmp_path), tmp_path / "whole.tfrecord"
    with (
        waiting(source, target, {}, REPAIRING) as first,
        pytest.raises(BlockingIOError, match="another repair is writing it"),
    ):
        ps.repair(source, into=target)
    assert first.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [
        ".whole.tfrecord.penstock",
        "whole.tfrecord",
        "x.tfrecord",
    ]
