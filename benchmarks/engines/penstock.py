"""penstock, called as a user would call it. Opening is part of the time, except if records are taken from a dataset
that is already open."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.data import Data
from benchmarks.engines import (
    arrays_penstock,
    choosing_penstock,
    containers_penstock,
    fields_penstock,
    images_penstock,
    loading_penstock,
    programs,
)
from benchmarks.job import Job, Outcome

ROLE = "penstock"
VENV = "penstock"
SIDECAR = ".penstock"


def raw(
    threads: int,
    *,
    mmap: bool = False,
    indexed: bool = False,
    stays_open: bool = False,
    paths: Callable[[Data], Any] = lambda d: d.plain,
) -> Callable[[Data], Job]:
    """Every record as bytes, in Arrow batches of one binary column. A dataset that stays open stands for the epochs
    after the first: if its file was mapped, it stays mapped."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        source = sources(paths(data))
        held = ps.open(source, raw=True, mmap=mmap) if stays_open else None

        def work(check: bool) -> Outcome:
            count = total = 0
            dataset = held or ps.open(source, raw=True, mmap=mmap)
            for batch in dataset.scan(threads=threads):
                count += batch.num_rows
                if check:
                    total += checks.payload_sum(v.as_py() for v in batch.column(0))
            return Outcome(count, "payloads", total & checks.WRAP)

        return Job(work, before=lambda: set_index(source, indexed))

    return make


def columns(
    threads: int,
    *,
    checksums: str = "all",
    given: bool = False,
    mmap: bool = False,
    indexed: bool = False,
    batch_records: int | None = 1024,
    paths: Callable[[Data], Any] = lambda d: d.plain,
) -> Callable[[Data], Job]:
    """Examples to columns, in batches of 1,024. `given` passes a schema, as users of TensorFlow have to; otherwise
    the schema is inferred within the measured time. If `batch_records` is None, penstock chooses the sizes."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        source = sources(paths(data))
        options: dict[str, Any] = {"checksums": checksums, "mmap": mmap}
        if given:
            kinds = {"id": "int64", "label": "int64", "text": "bytes"}
            options["schema"] = {n: ps.features.FixedLen((), k) for n, k in kinds.items()}
            options["schema"]["embedding"] = ps.features.FixedLen((16,), "float32")

        def work(check: bool) -> Outcome:
            count = total = 0
            size = {} if batch_records is None else {"batch_records": batch_records}
            for batch in ps.open(source, **options).scan(threads=threads, **size):
                count += batch.num_rows
                if check:
                    total += checks.arrow_sum(batch)
            return Outcome(count, "columns", total & checks.WRAP)

        return Job(work, before=lambda: set_index(source, indexed))

    return make


def set_index(source: str | list[str], wanted: bool) -> None:
    """Makes sure that the files have sidecars, or that they have none.

    penstock reads a file with an index in a different way than a file without one, and other cases leave indexes
    behind. So this is called before every round; otherwise the result would depend on the order of the cases.
    """
    for path in [source] if isinstance(source, str) else source:
        if not wanted:
            remove_sidecar(Path(path))
        elif not sidecars(Path(path)):
            import penstock as ps

            ps.index(path)


def sources(paths: Any) -> Any:
    """One path or a list of paths, as text."""
    return [str(p) for p in paths] if isinstance(paths, list) else str(paths)


def gzip_members(data: Data) -> Path:
    """The small rows in a file compressed by penstock itself."""
    import penstock as ps
    from benchmarks.engines import arrow_rows

    path = data.copy("penstock.tfrecord.gz")
    if not path.exists():
        ps.write(arrow_rows.table(data), str(path), compression="gzip", overwrite=True)
    return path


def write(folder_name: str, threads: int) -> Callable[[Data], Job]:
    """Write a table in memory to one file with its index, with default options."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks.engines import arrow_rows, written

        table = arrow_rows.table(data)
        path = Path(os.environ[folder_name]) / f"penstock-{threads}.tfrecord"

        def work(check: bool) -> Outcome:
            ps.write(table, str(path), threads=threads, overwrite=True)
            return written.outcome([path], check)

        def after() -> None:
            written.remove([path])
            remove_sidecar(path)

        return Job(work, after=after)

    return make


def take(mmap: bool) -> Callable[[Data], Job]:
    """Batches of 256 records as columns, with verified checksums, from a dataset that is already open and indexed."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        dataset = ps.open(str(data.plain), mmap=mmap)
        batches = [b.tolist() for b in checks.take_batches(data)]

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in batches:
                rows = dataset.take(batch)
                count += rows.num_rows
                if check:
                    total += checks.arrow_sum(rows)
            return Outcome(count, "take columns", total & checks.WRAP)

        return Job(work)

    return make


def remove_sidecar(path: Path) -> None:
    """Remove the index, so that the next open has to build one."""
    for each in sidecars(path):
        each.unlink(missing_ok=True)


def sidecars(path: Path) -> list[Path]:
    """The existing indexes of a file, by any version of penstock: next to it, and in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cached = Path(base, "penstock", "index").glob(f"*{path.name}.*{SIDECAR}")
    beside = (path.with_name(f".{path.name}{SIDECAR}"), Path(f"{path}{SIDECAR}"))
    return [each for each in (*beside, *cached) if each.exists()]


def index(data: Data) -> Job:
    """Builds the index of the plain file and saves it next to the data."""
    import penstock as ps

    def work(check: bool) -> Outcome:
        saved = ps.index(str(data.plain))
        if len(saved) != 1 or not Path(saved[0]).exists():
            raise ValueError(f"no sidecar was written: {saved}")
        return Outcome(data.num_records)

    return Job(work, before=lambda: remove_sidecar(data.plain))


def import_time(modules: str) -> Callable[[None], Job]:
    """An import in a new interpreter."""

    def make(data: None) -> Job:
        from benchmarks.engines import imports

        return imports.job(modules)

    return make


SCAN = {
    "1 thread": raw(1),
    "2 threads": raw(2),
    "1 thread, mmap": raw(1, mmap=True),
    "2 threads, mmap": raw(2, mmap=True),
    "1 thread, index present": raw(1, indexed=True),
    "2 threads, index present": raw(2, indexed=True),
}
TAKE = {"pread": take(False), "mmap": take(True)}
OPEN = {
    "1 thread, mmap, stays open": raw(1, mmap=True, stays_open=True),
    "2 threads, mmap, stays open": raw(2, mmap=True, stays_open=True),
}
JOBS = {
    "scan-small": SCAN,
    "scan-large": SCAN | OPEN,
    "parse-small": {
        "1 thread": columns(1),
        "2 threads": columns(2),
        "1 thread, schema given": columns(1, given=True),
        "2 threads, schema given": columns(2, given=True),
        "1 thread, index present": columns(1, indexed=True),
        "2 threads, index present": columns(2, indexed=True),
        "2 threads, batches of 65,536": columns(2, batch_records=65536),
    },
    "gzip-read": {
        "1 file, 1 thread": columns(1, paths=lambda d: d.gzip),
        "1 file, 2 threads": columns(2, paths=lambda d: d.gzip),
        "4 files, 2 threads": columns(2, paths=lambda d: d.gzip_shards),
        "4 files, 2 threads, undecoded": raw(2, paths=lambda d: d.gzip_shards),
    },
    "gzip-penstock": {
        "1 thread": columns(1, paths=gzip_members, indexed=True),
        "2 threads": columns(2, paths=gzip_members, indexed=True),
        "1 thread, no index": columns(1, paths=gzip_members),
        "2 threads, no index": columns(2, paths=gzip_members),
    },
    "checksum-cost": {
        f"checksums {which}": columns(1, checksums=which) for which in ("all", "headers", "none")
    },
    "write-small": {f"{n} thread{'s' * (n > 1)}": write("BENCHMARKS_TMPFS", n) for n in (1, 2)},
    "write-small-disk": {"2 threads": write("BENCHMARKS_DISK", 2)},
    "take-small": TAKE,
    "take-large": TAKE,
    "index-build-small": {"index": index},
    "index-build-large": {"index": index},
    "import-time": {
        "import penstock": import_time("penstock"),
        "numpy and pyarrow alone": import_time("numpy, pyarrow"),
    },
    "memory-small": {
        "plain, columns": columns(2, batch_records=None),
        "plain, undecoded": raw(2),
        "gzip, 1 file, columns": columns(2, batch_records=None, paths=lambda d: d.gzip),
        "gzip, 4 files, columns": columns(2, batch_records=None, paths=lambda d: d.gzip_shards),
    },
    "memory-large": {"plain, columns": columns(2, batch_records=None), "plain, undecoded": raw(2)},
    **fields_penstock.JOBS,
    **choosing_penstock.JOBS,
    **containers_penstock.JOBS,
    **arrays_penstock.JOBS,
    **loading_penstock.JOBS,
    **images_penstock.JOBS,
    **programs.jobs("penstock.tf"),
}
