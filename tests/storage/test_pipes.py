"""`ps.Pipe`: what a program prints is read as a file is."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import penstock as ps

COUNT = 200


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ps.write({"id": range(COUNT), "text": ["x" * 50] * COUNT}, tmp_path / "x.tar", index=False)
    return tmp_path / "x.tar"


def children() -> set[str]:
    """The processes that this one started and that still run."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def test_the_output_of_a_program_is_data(file: Path) -> None:
    before = children()
    ds = ps.open(ps.Pipe(["cat", file]))
    assert ds.schema == ps.open(file).schema
    assert ds.to_table() == ps.open(file).to_table()
    assert [batch.num_rows for batch in ds.scan()]
    assert ds.take([7, 3]) == ps.open(file).take([7, 3])
    assert ps.verify(ps.Pipe(["cat", file])).num_records == COUNT
    assert pickle.loads(pickle.dumps(ds)).to_table() == ds.to_table()
    assert children() == before


@pytest.mark.parametrize("ending", ["tfrecord", "tfrecord.gz", "parquet", "msgpack"])
def test_each_format_is_found_from_the_bytes(ending: str, tmp_path: Path) -> None:
    ps.write({"id": range(COUNT)}, tmp_path / f"x.{ending}")
    pipes = [ps.Pipe(["cat", tmp_path / f"x.{ending}"]) for _ in range(2)]
    assert ps.open(pipes).to_table()["id"].to_pylist() == [*range(COUNT)] * 2


def test_arguments_are_passed_as_they_are(tmp_path: Path) -> None:
    odd = tmp_path / "a b;*{1,2}$HOME`x`::'\".tar"
    ps.write({"id": [1, 2]}, odd, index=False)
    assert len(ps.open(ps.Pipe(["cat", odd]))) == 2
    for wrong in ("cat x.tar", [], b"cat"):
        with pytest.raises(TypeError, match="without a shell"):
            ps.Pipe(wrong)  # type: ignore[arg-type]
    with pytest.raises(ps.UnsupportedError, match="pipe: would run a command") as refused:
        ps.open(f"pipe:cat {odd}")
    assert "ps.Pipe" in str(refused.value)
    with pytest.raises(ValueError, match="together"):
        ps.open([ps.Pipe(["cat", odd]), str(odd)])


def test_a_program_that_fails_is_an_error_with_its_last_words(file: Path) -> None:
    program = f"import sys; sys.stdout.buffer.write(open({str(file)!r}, 'rb').read()); sys.exit('one\\nlast words')"
    with pytest.raises(ps.StorageError, match="ended with status 1: last words"):
        ps.open(ps.Pipe([sys.executable, "-c", program]))
    killed = "import os; os.kill(os.getpid(), 9)"
    with pytest.raises(ps.StorageError, match="status -9"):
        ps.open(ps.Pipe([sys.executable, "-c", killed]))
    with pytest.raises(ps.StorageError, match="cannot be started"):
        ps.open(ps.Pipe(["no-such-program-of-anybody"]))


def test_an_address_is_shown_without_its_signature() -> None:
    address = "https://host/x.tar?sig=secret-signature-1"
    pipe = ps.Pipe(["no-such-program", address])
    program = f"import sys; sys.exit('cannot read {address}')"
    for one in (pipe, ps.Pipe([sys.executable, "-c", program, address])):
        with pytest.raises(ps.StorageError) as failed:
            ps.open(one)
        if one is pipe:
            assert "secret-signature-1" not in str(failed.value) + repr(one)
        assert "cannot read https://host/x.tar?…" in str(failed.value) or one is pipe


@pytest.mark.parametrize("restarts", [False, True], ids=["", "after polars"])
def test_an_interrupt_leaves_no_process(restarts: bool) -> None:
    """Where another library has set the handler of Ctrl-C, as polars does, the system restarts a read."""
    before = children()
    signal.siginterrupt(signal.SIGINT, not restarts)
    main = threading.main_thread().ident
    timer = threading.Timer(0.5, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ps.open(ps.Pipe(["sh", "-c", "sleep 60; echo x"]))
    signal.siginterrupt(signal.SIGINT, True)
    assert time.monotonic() - begun < 5
    assert children() == before
    timer.join()


def test_a_killed_reader_leaves_no_process(tmp_path: Path) -> None:
    endless = "import os, sys; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True)\nwhile True: sys.stdout.write('x' * 1000)"
    reader = f"import penstock as ps; ps.open(ps.Pipe([{sys.executable!r}, '-c', {endless!r}, {str(tmp_path / 'pid')!r}]))"
    process = subprocess.Popen(
        [sys.executable, "-c", reader], env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    until = time.monotonic() + 30
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    pid = int((tmp_path / "pid").read_text())
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the program still runs")
