"""Forks while the loader's threads are running: the child reads the same records, and does not hang.

After a fork, the child has only one of the parent's threads. So a lock that another thread held is never released in
the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from loader.torturing import CONTAINERS, ended, ids_of, in_child, write
from penstock import _core
from penstock.storage.local import LocalSource, LocalStorage
from penstock.storage.source_views import SourceView

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    # Python warns about forks in processes with threads, which is what is tested here.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]
COUNT = 3000
ORDER = ps.Shuffled(seed=4)


def fork_while_loading(source: str, forks: int) -> None:
    expected = ORDER.take(COUNT, 0, 0, COUNT).tolist()
    ds = ps.open(source)
    loader = ps.Loader(ds, 16, order=ORDER, threads=4)
    batches = iter(loader)
    seen: list[int] = []

    def go_on() -> bool:
        """Whether a new loader, and the parent's loader reset to the same state, give the expected batches."""
        state = loader.state_dict()
        other = ps.Loader(ds, 16, order=ORDER, threads=2)
        other.load_state_dict(state)
        loader.load_state_dict(state)
        wanted = expected[state["position"] :][:32]
        found = [[n for _, b in zip(range(2), one, strict=False) for n in ids_of(b)]
                 for one in (other, loader)]  # fmt: skip
        return found == [wanted, wanted]

    for number in range(forks):
        batch = next(batches, None)
        if batch is None:  # a new epoch would have a different order
            loader.set_epoch(0)
            batches, seen = iter(loader), []
            batch = next(batches)
        seen += ids_of(batch)
        assert seen == expected[: len(seen)]
        status = ended(in_child(go_on))
        assert status == 0, f"fork {number}: {'hangs' if status is None else f'exit {status}'}"
    batches.close()


@pytest.mark.parametrize("name", list(CONTAINERS))
def test_a_forked_child_reads_the_same(name: str, tmp_path: Path) -> None:
    fork_while_loading(write(name, tmp_path, COUNT), forks=4)


@pytest.mark.stress
@pytest.mark.parametrize("name", list(CONTAINERS))
def test_a_thousand_forks(name: str, tmp_path: Path) -> None:
    fork_while_loading(write(name, tmp_path, COUNT), forks=1000 // len(CONTAINERS) + 1)


def test_an_iterator_of_the_parent_raises_an_error_in_a_child(tmp_path: Path) -> None:
    batches = iter(ps.Loader(ps.open(write("x.parquet", tmp_path, 100)), 16, threads=2))
    next(batches)

    def goes_on() -> bool:
        with pytest.raises(RuntimeError, match="forked"):
            next(batches)
        return True

    assert ended(in_child(goes_on)) == 0
    batches.close()


class Held(LocalStorage):
    """A storage whose reads wait in the process that made it, so that this process holds locks when it forks."""

    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()
        self.armed = False
        self.reading, self.go_on = threading.Event(), threading.Event()

    def source(self, path: str, *, mmap: bool = False) -> Any:
        self.wait()
        source = super().source(path, mmap=mmap)
        assert isinstance(source, LocalSource)
        return HeldSource(source, self)

    def wait(self) -> None:
        if self.armed and os.getpid() == self.process:
            self.reading.set()
            assert self.go_on.wait(30)


class HeldSource(SourceView):
    def __init__(self, source: LocalSource, held: Held) -> None:
        super().__init__(source)
        self._held = held

    def read(self, start: int, length: int) -> _core.Buffer:
        self._held.wait()
        return self._source.read(start, length)

    def gather(self, starts: Any, lengths: Any) -> _core.Buffer:
        self._held.wait()
        return self._source.gather(starts, lengths)


# h5py delays a fork while any thread is in libhdf5, so a read that waits here would delay it for
# ever.
@pytest.mark.parametrize("name", [name for name in CONTAINERS if name != "x.h5"])
def test_a_fork_in_the_middle_of_a_read_leaves_no_lock_behind(name: str, tmp_path: Path) -> None:
    """Reading the first records may open files, locate records and inflate, all of which use locks."""
    source = write(name, tmp_path, COUNT)
    storage = Held()
    ds = ps.open(source, storage=storage, index="never")
    records = [COUNT - 1, 5]
    storage.armed = True
    reading = threading.Thread(target=ds.take, args=(records,))
    reading.start()
    assert storage.reading.wait(10) or not reading.is_alive()

    def reads() -> bool:
        return [ids_of(record) for record in _records(ds.take(records))] == [[n] for n in records]

    status = ended(in_child(reads))
    storage.go_on.set()
    reading.join()
    assert status == 0, "hangs" if status is None else f"exit {status}"


def _records(batch: Any) -> list[dict[str, Any]]:
    return [{name: [value] for name, value in one.items()} for one in batch.to_pylist()]


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": np.arange(6_000_000)}), path, row_group_size=6_000_000)
    code = """
        import os, sys, threading
        import penstock as ps
        dataset = ps.open(sys.argv[1])
        reader = dataset.files.reader(0)
        chunks = list(reader.chunks())
        assert len(chunks) > 1
        # The state while one thread is reading and another thread forks.
        reader._cursors._pending[(0, ("n",))] = [1]
        child = os.fork()
        if not child:
            rows = sum(batch.num_rows for batch in dataset.scan(threads=2))
            os._exit(0 if rows == 6_000_000 else 1)
        print(os.waitpid(child, 0)[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr
