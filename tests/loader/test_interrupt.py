"""Ctrl-C, the end of the program, errors in threads, and the first batch: no user has to wait for long.

The times here are limits for what a person notices, a second and more, on a machine that others use too. Measured
times are compared with the time that a program without a loader takes to end.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from loader.torturing import ids_of, write
from reading import ROOT, run_python

SPARE = 4.0
"""Extra seconds for a busy machine, beyond the promised second; a program that hangs takes longer than this."""

BEGIN = """
import sys, time, threading
import numpy as np, pyarrow
import penstock as ps

def slow(batch):
    time.sleep(600)
    return batch

def heavy(column):
    while True:
        sum(range(1000))

ds = ps.open(sys.argv[1])
"""

WAITS = {
    "for a batch whose map sleeps": "next(iter(ps.Loader(ds, 4, map=slow, threads=3)))",
    "for a batch whose decoding never ends": (
        "next(iter(ps.Loader(ds, 4, decode={'id': heavy}, threads=3)))"
    ),
    "in the loop's own work": """
for batch in ps.Loader(ds, 4, order=ps.Shuffled(0), threads=8):
    time.sleep(600)
""",
    "in a loop without end": """
while True:
    for batch in ps.Loader(ds, 64, order=ps.Shuffled(0), threads=8):
        pass
""",
    "in a loop without threads": """
while True:
    for batch in ps.Loader(ds, 64, order=ps.Shuffled(0), threads=0):
        pass
""",
    "with an iterator left in the middle": """
left = iter(ps.Loader(ds, 4, order=ps.Shuffled(0), threads=8))
next(left)
time.sleep(600)
""",
}


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def finish(process: subprocess.Popen[str], seconds: float) -> tuple[float, str]:
    """How long the program takes to end, and its output. If it does not end, it is killed and the test fails."""
    begun = time.monotonic()
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        pytest.fail(f"still running after {seconds} s")
    return time.monotonic() - begun, said


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write("plain.tfrecord", tmp_path_factory.mktemp("interrupt"), 5000)


@pytest.mark.parametrize("where", list(WAITS))
def test_ctrl_c_ends_the_program_within_a_second(where: str, source: str) -> None:
    process = child("print('ready', flush=True)\n" + WAITS[where], source)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = finish(process, 1 + SPARE)
    assert process.returncode == -signal.SIGINT, said
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    assert "Fatal" not in said and "FATAL" not in said


ENDS = {
    "map": "left = iter(ps.Loader(ds, 4, map=lambda b: time.sleep(0.05) or b, threads=8))",
    "loader": "left = iter(ps.Loader(ds, 64, order=ps.Shuffled(0), threads=8))",
    "scan": "left = ds.scan(batch_records=10, threads=8)",
}


@pytest.mark.parametrize("kind", list(ENDS))
def test_a_program_ends_without_error_with_an_iterator_left_in_the_middle(
    kind: str, source: str
) -> None:
    """The interpreter kills threads that return after its end, and Rust would treat that as a fault."""
    for _ in range(3):
        process = child(f"{ENDS[kind]}\nnext(left)", source)
        _, said = finish(process, 20)
        assert (process.returncode, said) == (0, "")


def test_a_program_does_not_wait_for_a_function_that_sleeps(source: str) -> None:
    code = """
def map(batch):
    time.sleep(600 if 40 in batch["id"] else 0)
    return batch
left = iter(ps.Loader(ds, 4, map=map, threads=8))
next(left)
time.sleep(0.2)
left.close()
print('closed', flush=True)
"""
    process = child(code, source)
    _, said = finish(process, 20)
    assert (process.returncode, said) == (0, "")


def test_an_exception_in_the_loop_ends_the_program(source: str) -> None:
    code = """
for batch in ps.Loader(ds, 4, threads=8):
    raise ValueError("of the loop")
"""
    process = child(code, source)
    _, said = finish(process, 20)
    assert process.returncode == 1
    assert said.rstrip().endswith("ValueError: of the loop")


# -- errors -------------------------------------------------------------------------------------


def fails_at_40(batch: dict[str, Any]) -> dict[str, Any]:
    if 40 in batch["id"]:
        raise ZeroDivisionError("at 40")
    time.sleep(0.001 * (int(batch["id"][0]) % 3))
    return batch


@pytest.mark.parametrize("threads", [0, 1, 8])
def test_an_error_comes_in_its_place_with_its_traceback(threads: int, source: str) -> None:
    loader = ps.Loader(ps.open(source), 8, map=fails_at_40, threads=threads)
    for _ in range(3):
        loader.set_epoch(0)
        seen: list[int] = []
        with pytest.raises(ZeroDivisionError, match="at 40") as caught:
            for batch in loader:
                seen += ids_of(batch)
        assert seen == list(range(40))
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert "fails_at_40" in names
        assert loader.state_dict()["position"] == 40
    # Continuing from the state meets the error again immediately.
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))
    # After the damaged batch, everything works.
    loader.load_state_dict({**loader.state_dict(), "position": 48})
    assert [n for batch in loader for n in ids_of(batch)] == list(range(48, 5000))


def test_errors_hold_no_memory(source: str) -> None:
    """Tracebacks hold the frames of threads, and these hold the batches that were being made."""
    import gc
    import weakref

    class Marked(np.ndarray):
        pass

    alive: list[weakref.ref[Any]] = []

    def wrong(batch: dict[str, Any]) -> dict[str, Any]:
        marked = np.zeros(1000).view(Marked)
        alive.append(weakref.ref(marked))
        raise ValueError(len(marked))

    loader = ps.Loader(ps.open(source), 8, map=wrong, threads=4)
    for _ in range(20):
        with pytest.raises(ValueError, match="1000"):
            next(iter(loader))
    gc.collect()
    assert sum(one() is not None for one in alive) == 0


# -- the first batch ----------------------------------------------------------------------------


def test_the_first_batch_does_not_wait_for_others(source: str) -> None:
    """Every other batch takes at least a second, and the first one must come before that."""
    started = threading.Event()

    def slower(batch: dict[str, Any]) -> dict[str, Any]:
        if batch["id"][0]:
            started.set()
            time.sleep(1.0)
        return batch

    loader = ps.Loader(ps.open(source), 8, map=slower, threads=8)
    for _ in range(2):
        loader.set_epoch(0)
        begun = time.monotonic()
        iterator = iter(loader)
        assert ids_of(next(iterator)) == list(range(8))
        assert time.monotonic() - begun < 1.0
        assert started.wait(10)
        iterator.close()  # pyright: ignore[reportAttributeAccessIssue]
        _wait_for_threads()


def _wait_for_threads() -> None:
    """Wait until no thread is left. Closing an iterator does not wait for threads that run a function of the user."""
    until = time.monotonic() + 20
    while any(t.name.startswith("penstock-") for t in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


# -- pickles ------------------------------------------------------------------------------------

SPAWNED = """
import pickle, sys
import penstock as ps
with open(sys.argv[1], 'rb') as file:
    loader, state = pickle.load(file)
assert loader.state_dict() == state
loader.load_state_dict(state)
print([n for b in loader for n in map(int, b['id'])])
"""


@pytest.mark.parametrize("name", ["plain.tfrecord", "gzip.tfrecord", "x.parquet", "x.tar"])
def test_a_loader_in_the_middle_of_an_epoch_goes_to_another_process(
    name: str, tmp_path: Path
) -> None:
    """The loader is pickled, as for spawned workers. The pickle has the position in the epoch, but not the
    iterator."""
    ds = ps.open(write(name, tmp_path, 500))
    order = ps.Blocked(3, window_chunks=2, chunk_records=32)
    loader = ps.Loader(ds, 16, order=order, threads=4)
    whole = [n for batch in loader for n in ids_of(batch)]
    loader.set_epoch(0)
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    path = tmp_path / "loader.pickle"
    path.write_bytes(pickle.dumps((loader, loader.state_dict())))
    assert [n for batch in iterator for n in ids_of(batch)] == whole[48:]
    assert run_python(SPAWNED, str(path)).strip() == str(whole[48:])
