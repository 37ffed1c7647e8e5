"""If bytes cannot be read, every verb raises the storage's error. It is never taken for damage, and no verb goes on
without the bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from held import FILES, table_of

import penstock as ps
from penstock import _core
from penstock.contract.format import Format
from penstock.storage import MemoryStorage
from penstock.storage.base import Source
from penstock.storage.hidden import is_own
from penstock.storage.source_views import SourceView
from penstock.verbs.write.write import write

per_file_format = pytest.mark.parametrize("fmt", FILES, ids=lambda fmt: fmt.info.name)
STOPS = 5
NEVER = 1 << 60


class Failing(MemoryStorage):
    """Files of which the n-th read fails."""

    def __init__(self, files: dict[str, bytes], error: Callable[[], BaseException]) -> None:
        super().__init__(files)
        self._error = error
        self._lock = threading.Lock()
        self.at, self.reads = NEVER, 0

    def source(self, path: str, *, mmap: bool = False) -> Any:
        found = super().source(path)
        return (
            found if is_own(path) else _FailingSource(found, self)
        )  # an index that cannot be read is made anew

    def count(self) -> None:
        with self._lock:
            self.reads += 1
            fails = self.reads == self.at
        if fails:
            raise self._error()


class _FailingSource(SourceView):
    def __init__(self, source: Source, storage: Failing) -> None:
        super().__init__(source)
        self._failing = storage

    def read(self, start: int, length: int) -> _core.Buffer:
        self._failing.count()
        return self._source.read(start, length)


def verbs(path: str, files: Failing, folder: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    def opened(**options: Any) -> ps.Dataset:
        return ps.open(path, storage=files, index="never", **options)

    def load(dataset: ps.Dataset, order: Any) -> None:
        for _ in ps.Loader(dataset, 16, order=order, threads=1):
            pass

    new = str(folder / f"new-{path}")
    verify: dict[str, Any] = {"storage": files, "index": "never"}
    repair: dict[str, Any] = {"storage": files, "into": new, "index": False, "overwrite": True}
    yield "skip", lambda: opened(damage="skip").to_table()
    yield "stop", lambda: opened(damage="stop").to_table()
    yield "several", lambda: ps.open([path, f"2-{path}"], storage=files, damage="skip").to_table()
    yield "take", lambda: opened(damage="skip").take([90, 3, 15])
    yield "shuffled", lambda: load(opened(), ps.Shuffled(seed=0))
    yield "blocked", lambda: load(opened(damage="skip"), ps.Blocked(seed=0))
    yield "verify", lambda: ps.verify(path, **verify)
    yield "decode", lambda: ps.verify(path, decode=True, **verify)
    yield "repair", lambda: ps.repair(path, **repair)
    yield "salvage", lambda: ps.repair(path, salvage=True, **repair)
    yield "layout", lambda: ps.layout(path, storage=files, record=3)
    yield "stats", lambda: ps.stats(opened())
    yield "diff", lambda: ps.diff(opened(), opened())
    yield "index", lambda: ps.index(path, storage=files, folder=folder, checksums=True, force=True)


def check(fmt: Format, folder: Path, stops: int, error: Callable[[], BaseException]) -> None:
    path = f"a{fmt.info.extensions[0]}"
    write(table_of(fmt).slice(0, 100), str(folder / path), format=fmt.info.name, index=False)
    body = (folder / path).read_bytes()
    for name, call in verbs(path, files := Failing({path: body, f"2-{path}": body}, error), folder):
        files.at, files.reads = NEVER, 0
        call()
        for at in np.unique(np.linspace(1, files.reads, min(stops, files.reads)).astype(int)):
            files.at, files.reads = int(at), 0
            try:
                call()
            except type(error()):
                continue
            # Another run may need fewer reads.
            assert files.reads < at, f"{name} goes on after an error at read {at}"


@per_file_format
def test_an_error_of_a_store_is_raised_by_every_verb(fmt: Format, tmp_path: Path) -> None:
    check(fmt, tmp_path, STOPS, lambda: ps.StorageError("the store failed"))


@per_file_format
def test_ctrl_c_in_a_read_is_raised_by_every_verb(fmt: Format, tmp_path: Path) -> None:
    check(fmt, tmp_path, 2, KeyboardInterrupt)


@pytest.mark.stress
@per_file_format
@pytest.mark.parametrize("error", [ps.StorageError, PermissionError, KeyboardInterrupt])
def test_an_error_at_any_read_is_raised_by_every_verb(
    fmt: Format, error: type[BaseException], tmp_path: Path
) -> None:
    check(fmt, tmp_path, 100, lambda: error("13"))
