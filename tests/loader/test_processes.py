"""Worker processes for the user's functions: the results equal those of threads, and the processes end when they
should."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import user_functions as functions

import penstock as ps

COUNT = 100


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("processes") / "n.tfrecord"
    ps.write({"id": range(COUNT), "name": [f"n{n}" for n in range(COUNT)]}, path)
    return path


def loader(data: Path, **more: Any) -> ps.Loader:
    return ps.Loader(ps.open(data), 8, **{"order": ps.Shuffled(3), "processes": 2, **more})


@pytest.fixture(autouse=True)
def threads_end_soon() -> Iterator[None]:
    """Wait until no thread is left. If the loop is left while a thread starts a worker, that thread ends as soon as the
    worker has started."""
    yield
    gc.collect()
    names = ("penstock-0", "penstock-1", "penstock-2", "penstock-3")
    wait_until(lambda: not any(t.name in names for t in threading.enumerate()), 20)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(is_so: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def columns(batches: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [v for b in batches for v in b[name].tolist()] for name in batches[0]}


@pytest.mark.parametrize(
    "given",
    [
        {"map": functions.keyed},
        {"map_records": functions.counted},
        {"map_records": functions.counted, "map": functions.slow_for_odd},
        {"map": functions.writes, "threads": 0},
    ],
)
def test_batches_equal_the_batches_of_threads_in_the_same_order(
    data: Path, given: dict[str, Any]
) -> None:
    apart = columns(list(loader(data, **given)))
    assert apart == columns(list(loader(data, **given, processes=0)))
    assert apart["id"][:5] != sorted(apart["id"][:5]) or "threads" in given


def test_workers_are_other_processes_and_used_again_in_the_next_epoch(data: Path) -> None:
    one = loader(data, map=functions.doubled)
    first = set(columns(list(one))["pid"])
    second = set(columns(list(one))["pid"])
    assert os.getpid() not in first | second
    assert len(first | second) <= 2


def test_an_error_comes_in_its_place_with_its_traceback(data: Path) -> None:
    one = loader(data, order=ps.Sequential(), map=functions.failing)
    seen = []
    with pytest.raises(ValueError, match=r"no good: \[16, ") as caught:
        seen.extend(batch["id"][0] for batch in one)
    assert seen == [0, 8]
    assert 'raise ValueError(f"no good' in str(caught.value.__cause__)
    assert next(iter(one))["id"][0] == 0  # the workers still run


def test_an_error_that_cannot_be_pickled_keeps_its_message(data: Path) -> None:
    with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
        list(loader(data, map=functions.failing_oddly))


def test_a_killed_worker_raises_a_clear_error_and_is_replaced(data: Path) -> None:
    one = loader(data, order=ps.Sequential(), map=functions.killed)
    with pytest.raises(RuntimeError, match=r"worker process \d+ of map was ended by SIGKILL"):
        list(one)
    assert next(iter(one))["id"][0] == 0
    with pytest.raises(RuntimeError, match=r"ended with status 7 before its first batch"):
        list(loader(data, map=functions.exits))


def test_functions_that_cannot_be_pickled_are_refused(data: Path) -> None:
    with pytest.raises(TypeError, match="top of a module"):
        loader(data, map=lambda batch: batch)
    with pytest.raises(TypeError, match="cannot be pickled"):
        list(loader(data, map=functions.gives_a_lock))
    with pytest.raises(ValueError, match="processes"):
        loader(data, map=functions.keyed, processes=-1)


def test_a_loop_that_is_left_does_not_wait_for_the_function(data: Path) -> None:
    one = loader(data, order=ps.Sequential(), map=functions.sleeps_later)
    for _ in one:
        begun = time.monotonic()
        break
    assert time.monotonic() - begun < 10  # about half a second, and more on a busy machine
    assert next(iter(one))["id"][0] == 0


def test_workers_end_with_their_loader(data: Path) -> None:
    one = loader(data, map=functions.doubled)
    list(one)
    assert one._workers is not None
    pids = one._workers.pids
    assert pids
    assert all(map(is_running, pids))
    del one
    gc.collect()
    assert wait_until(lambda: not any(map(is_running, pids)), 5)


def test_a_loader_with_workers_pickles(data: Path) -> None:
    one = loader(data, map=functions.doubled)
    expected = columns(list(one))["id"]
    again = pickle.loads(pickle.dumps(loader(data, map=functions.doubled)))
    assert columns(list(again))["id"] == expected


_PARENT = """
import sys
sys.path.insert(0, {folder!r})
import user_functions as functions
import penstock as ps

if __name__ == "__main__":
    one = ps.Loader(ps.open({data!r}, index="never"), 8, processes=2, map=functions.{function})
    try:
        for n, batch in enumerate(one):
            if n == 0:
                print(*one._workers.pids, flush=True)
            if "{function}" == "doubled":
                import time
                # A signal that comes just before a sleep does not end it: Python looks when it is over.
                for _ in range(600):
                    time.sleep(0.1)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_when_their_parent_is_ended(data: Path, tmp_path: Path, sent: int) -> None:
    script = tmp_path / "parent.py"
    folder = str(Path(__file__).parent)
    script.write_text(_PARENT.format(folder=folder, data=str(data), function="doubled"))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert pids
        parent.send_signal(sent)
        assert wait_until(lambda: not any(map(is_running, pids)), 5)
        parent.wait(10)


def started(data: Path, tmp_path: Path, function: str) -> subprocess.Popen[str]:
    """A process whose workers are making their first batches."""
    script = tmp_path / "parent.py"
    folder = str(Path(__file__).parent)
    script.write_text(_PARENT.format(folder=folder, data=str(data), function=function))
    return subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)


@contextmanager
def killed_in_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()


def workers_of(pid: int) -> list[int]:
    """The workers of a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(word) for word in task.read_text().split()]
    return [one for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.mark.parametrize("function", ["sleeps", "spins"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_immediately_in_the_middle_of_a_function(
    data: Path, tmp_path: Path, function: str, sent: signal.Signals
) -> None:
    with started(data, tmp_path, function) as parent, killed_in_the_end(parent):
        assert wait_until(lambda: len(workers_of(parent.pid)) > 0, 60)
        time.sleep(1.5)  # wait until the workers have imported the function and run it
        pids = workers_of(parent.pid)
        begun = time.monotonic()
        parent.send_signal(sent)
        out, _ = parent.communicate(timeout=30)
        assert ("interrupted" in out) == (sent == signal.SIGINT)
        assert wait_until(lambda: not any(map(is_running, pids)), 5)
        # About half a second, and more on a busy machine.
        assert time.monotonic() - begun < 5


def test_a_script_without_a_main_guard_gets_an_error_that_names_the_guard(
    data: Path, tmp_path: Path
) -> None:
    script = tmp_path / "bare.py"
    script.write_text(
        "import penstock as ps\n"
        "def same(batch):\n    return batch\n"
        f"list(ps.Loader(ps.open({str(data)!r}, index='never'), 8, map=same, processes=1))\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert 'needs if __name__ == "__main__"' in done.stderr


@pytest.mark.parametrize(
    ("main", "function", "omp", "threads"),
    [
        ("", "with_torch_threads", None, 1),
        ("", "with_torch_threads", "2", min(2, os.cpu_count() or 1)),
        ("import torch; torch.set_num_threads(4)", "with_torch_threads", None, 1),
        ("import torch", "with_three_torch_threads", None, 3),
    ],
)
def test_torch_uses_one_thread_in_a_worker_unless_the_user_decides(
    data: Path, tmp_path: Path, main: str, function: str, omp: str | None, threads: int
) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "program.py"
    script.write_text(
        f"{main}\n"
        "import penstock as ps, user_functions\n"
        'if __name__ == "__main__":\n'
        f"    ds = ps.open({str(data)!r}, index='never')\n"
        f"    loader = ps.Loader(ds, 50, map=user_functions.{function}, processes=1)\n"
        "    print({int(n) for batch in loader for n in batch['threads']})\n"
    )
    environ = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    paths = [str(Path(functions.__file__).parent), environ.get("PYTHONPATH", "")]
    environ |= {"PYTHONPATH": os.pathsep.join(paths)} | ({"OMP_NUM_THREADS": omp} if omp else {})
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environ,
    )
    assert done.stdout.strip() == f"{{{threads}}}", done.stderr


def test_large_arrays_arrive_complete(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    rows = np.random.default_rng(0).random((64, 100_000), dtype=np.float32)
    np.save(path, rows)
    one = ps.Loader(ps.open(path), 32, processes=1, map=_negated)
    found = np.concatenate([batch["data"] for batch in one])
    assert (found == -rows).all()


def _negated(batch: dict[str, Any]) -> dict[str, Any]:
    return {"data": -batch["data"]}
