"""penstock's jobs on files of arrays; listed in `penstock.JOBS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import arrays, containers, pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome


def columns_of(batch: Any) -> Iterator[Any]:
    """The columns of an Arrow batch as NumPy arrays; for tensors, their values."""
    import pyarrow as pa

    for column in batch.columns:
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        while pa.types.is_fixed_size_list(column.type):
            column = column.flatten()
        yield column.to_numpy(zero_copy_only=False)


def scan(form: str, threads: int, *, mmap: bool = False) -> Callable[[Data], Job]:
    """Every row, as columns."""

    def make(data: Data) -> Job:
        import penstock as ps

        path = str(arrays.copy(data, form))

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in ps.open(path, mmap=mmap).scan(threads=threads):
                count += batch.num_rows
                if check:
                    total += arrays.total(columns_of(batch))
            if check:
                arrays.proved(data, form, total)
            return Outcome(count)

        return Job(work)

    return make


def take(
    path_of: Callable[[Data], Path], *, mmap: bool, raw: bool = False
) -> Callable[[Data], Job]:
    """256 random rows at a time, from a dataset that is already open."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        dataset = ps.open(str(path_of(data)), mmap=mmap, raw=raw)
        batches = checks.take_batches(data)
        len(dataset)

        def work(check: bool) -> Outcome:
            return Outcome(sum(dataset.take(batch).num_rows for batch in batches))

        return Job(work)

    return make


def takes(
    path_of: Callable[[Data], Path], *, raw: bool = False
) -> dict[str, Callable[[Data], Job]]:
    """The rows of the table for a `take` case."""
    return {row: take(path_of, mmap=row == "mmap", raw=raw) for row in ("pread", "mmap")}


def array_record(threads: int) -> Callable[[Data], Job]:
    """Every payload of an ArrayRecord file, as a binary column."""

    def make(data: Data) -> Job:
        import penstock as ps
        from benchmarks import checks

        path = str(containers.copy(data, "array_record"))

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in ps.open(path, raw=True).scan(threads=threads):
                count += batch.num_rows
                if check:
                    total += checks.payload_sum(v.as_py() for v in batch.column(0))
            return Outcome(count, "payloads", total & checks.WRAP)

        return Job(work)

    return make


def raw_images(threads: int, *, shuffled: bool, mmap: bool) -> Callable[[Data], Job]:
    """Batches of raw images of a .beton file by a Loader, one epoch."""

    def make(data: Data) -> Job:
        import penstock as ps

        dataset = ps.open(pictures.raw_beton(), mmap=mmap)
        order = ps.Shuffled(seed=0) if shuffled else ps.Sequential()
        decode = {"image": ps.Image()}
        loader = ps.Loader(dataset, pictures.BATCH, order=order, decode=decode, threads=threads)

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in loader:
                count += len(batch["image"])
                if check:
                    total += arrays.total([batch["image"]])
            if check and total != pictures.raw_total():
                raise ValueError("the images are not those that were written")
            return Outcome(count)

        return Job(work)

    return make


FORMS = ("hdf5-plain", "hdf5-gzip", "hdf5-lzf", "npy", "npz", "npz-deflated")
TAKEN = ("hdf5-plain", "hdf5-gzip", "hdf5-lzf", "npy", "npz")
SIZES = ("small", "large")
JOBS: dict[str, dict[str, Callable[[Data], Job]]] = {
    **{
        f"{form}-{size}": {
            "1 thread": scan(form, 1),
            "2 threads": scan(form, 2),
            "1 thread, mmap": scan(form, 1, mmap=True),
        }
        for form in FORMS
        for size in SIZES
    },
    **{
        f"{form}-take-{size}": takes(partial(arrays.copy, form=form))
        for form in TAKEN
        for size in SIZES
    },
    **{
        f"arrayrecord-{size}": {"1 thread": array_record(1), "2 threads": array_record(2)}
        for size in SIZES
    },
    **{
        f"arrayrecord-take-{size}": takes(partial(containers.copy, suffix="array_record"), raw=True)
        for size in SIZES
    },
    **{
        f"beton-raw{'-shuffled' * shuffled}": {
            f"{threads} thread{'s' * (threads > 1)}{', mmap' * mmap}": raw_images(
                threads, shuffled=shuffled, mmap=mmap
            )
            for threads in (1, 2)
            for mmap in (False, True)
        }
        for shuffled in (False, True)
    },
}
