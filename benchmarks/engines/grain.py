"""Grain over ArrayRecord: one record per group, uncompressed, without read-ahead, which is the fastest setting for
random access."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.data import TAKE_BATCHES, TAKE_RECORDS, Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def _path(data: Data) -> str:
    from array_record.python.array_record_module import ArrayRecordWriter

    from benchmarks import generate

    path = data.copy("group1.array_record")
    if not path.exists():
        small = data.size == "small"
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        chunks = generate.small_rows if small else generate.large_rows
        for rows in chunks(data.num_records):
            for payload in (generate.small_payloads if small else generate.large_payloads)(rows):
                writer.write(payload)
        writer.close()
    return str(path)


def load(batches: Callable[[str], Iterator[Any]], passes: int) -> Callable[[Data], Job]:
    """A number of batches of undecoded payloads, one after another."""

    def make(data: Data) -> Job:
        path = _path(data)

        def work(check: bool) -> Outcome:
            from benchmarks import checks

            count = 0
            seen: list[bytes] = []
            for number, batch in enumerate(batches(path)):
                if number == passes * TAKE_BATCHES[data.size]:
                    break
                payloads = list(batch)
                count += len(payloads)
                if check:
                    seen += payloads
            # Each engine has a different shuffle, so the check is only that the records differ.
            return Outcome(count, "", len(set(map(checks.zlib.crc32, seen))) if check else 0)

        return Job(work)

    return make


def _source(path: str) -> Iterator[Any]:
    import numpy as np
    from array_record.python.array_record_data_source import ArrayRecordDataSource

    source = ArrayRecordDataSource(path)
    order = np.random.default_rng(0).permutation(len(source))
    for start in range(0, len(order), TAKE_RECORDS):
        yield source.__getitems__(order[start : start + TAKE_RECORDS].tolist())


def _dataset(path: str) -> Iterator[Any]:
    import grain

    source = grain.sources.ArrayRecordDataSource(path)
    dataset = grain.MapDataset.source(source).shuffle(seed=0).batch(TAKE_RECORDS, batch_fn=list)
    options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
    return iter(dataset.to_iter_dataset(options))


JOBS = {
    case: {
        "ArrayRecord, __getitems__ of 256": load(_source, 5),
        "ArrayRecord, MapDataset, 2 threads": load(_dataset, 1),
    }
    for case in ("load-small", "load-large")
}
