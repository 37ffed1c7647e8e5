"""Ctrl-C in the middle of work on several threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_pipeline import numbers, threads_of_ours

import frames
from penstock.engine.locks import Lock
from penstock.engine.pipeline import in_order
from penstock.engine.threads import Work, wait_for
from reading import ROOT

INTERRUPTED = """
import sys
import penstock as ps
dataset = ps.open(sys.argv[1:], raw=True, index="never")
print("ready", flush=True)
try:
    while True:
        for batch in dataset.scan(threads=3):
            pass
except KeyboardInterrupt:
    import threading, time
    # Where the signal came while threads were ending, they need a moment more.
    for _ in range(200):
        left = [t.name for t in threading.enumerate() if t.name.startswith("penstock-")]
        if not left:
            break
        time.sleep(0.01)
    print("interrupted", left, flush=True)
"""


def _interrupted(child: subprocess.Popen[str]) -> str:
    """What a program says that is interrupted; once more where Python drops the first signal, as it does, with
    "Exception ignored", if that comes in a callback of a weak reference."""
    try:
        for patience in (5, 15):
            child.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                return child.communicate(timeout=patience)[0]
    finally:
        child.kill()
    raise AssertionError("it goes on after two signals")


def test_ctrl_c_ends_a_scan_within_seconds(tmp_path: Path) -> None:
    paths = []
    for number in range(4):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(frames.frame(os.urandom(5000)) * 4000)
        paths.append(str(path))
    command = [sys.executable, "-c", INTERRUPTED, *paths]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        time.sleep(0.3)
        said = _interrupted(child)
    assert said.strip() == "interrupted []"
    assert child.returncode == 0


def test_ctrl_c_in_a_task_of_the_caller_ends_it_immediately() -> None:
    def run(task: int) -> list[int]:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.01)
        return [task]

    found = in_order([partial(numbers, 0, 1000)], run, lambda _: 1, 2)
    with pytest.raises(KeyboardInterrupt):
        list(found)
    assert not threads_of_ours()


def test_no_thread_waits_for_a_task_that_ctrl_c_took_from_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changed = threading.Condition()
    done = {-1}

    def run(task: int) -> list[int]:
        with changed:
            wait_for(changed, lambda: task - 1 in done)
            done.add(task)
            changed.notify_all()
        return [task]

    def interrupted(self: Any, stream: Any, number: int, task: int) -> None:
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.1)  # others have the next task meanwhile, and wait for this one
            raise KeyboardInterrupt
        do(self, stream, number, task)

    do = Work._run_task
    monkeypatch.setattr(Work, "_run_task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(in_order([partial(numbers, 0, 100_000)], run, lambda _: 1, 3))
    assert not threads_of_ours()


def test_ctrl_c_finds_no_lock_half_taken() -> None:
    """A method in Python could be interrupted between having the lock and `with` knowing of it."""
    for method in (Lock.__enter__, Lock.__exit__):
        assert not hasattr(method, "__code__")
    lock = Lock()
    with lock:
        assert not lock.was_cut_short()
    child = os.fork()
    if not child:
        with lock:
            os._exit(lock.was_cut_short())
    assert os.waitpid(child, 0)[1] == 0
    with lock:
        child = os.fork()
        if not child:
            with lock:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
