"""The libraries for arrays: h5py and NumPy, and ArrayRecord's own reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks import arrays, containers
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"
PIECE_BYTES = 2 << 20
"""The best of several sizes of slices, for all of these libraries."""

Columns = dict[str, Any]


def _slices(columns: Columns) -> Iterator[list[Any]]:
    """All rows of some columns, in slices that are copied to memory."""
    import numpy as np

    first = next(iter(columns.values()))
    size = sum(c.dtype.itemsize * int(np.prod(c.shape[1:])) for c in columns.values())
    step = max(1024, PIECE_BYTES // size // 1024 * 1024) if size < 1 << 16 else 32
    for start in range(0, len(first), step):
        yield [np.array(column[start : start + step]) for column in columns.values()]


def _h5py(path: str) -> Iterator[list[Any]]:
    import h5py

    with h5py.File(path, "r") as file:
        yield from _slices(dict(file.items()))


def _numpy_whole(path: str) -> Iterator[list[Any]]:
    import numpy as np

    loaded = np.load(path)
    yield [loaded] if isinstance(loaded, np.ndarray) else [loaded[name] for name in loaded.files]


def _numpy_mapped(path: str) -> Iterator[list[Any]]:
    import numpy as np

    yield from _slices({"": np.load(path, mmap_mode="r")})


def scan(form: str, read: Callable[[str], Iterator[list[Any]]]) -> Callable[[Data], Job]:
    """Every row, as arrays."""

    def make(data: Data) -> Job:
        path = str(arrays.copy(data, form))

        def work(check: bool) -> Outcome:
            count = total = 0
            for columns in read(path):
                count += len(columns[0])
                total += arrays.total(columns) if check else 0
            if check:
                arrays.proved(data, form, total)
            return Outcome(count)

        return Job(work)

    return make


def take_h5py(form: str, *, one_by_one: bool) -> Callable[[Data], Job]:
    """256 random rows: sorted for h5py and then put back into the requested order, or read row by row."""

    def make(data: Data) -> Job:
        import h5py
        import numpy as np

        from benchmarks import checks

        columns = dict(h5py.File(arrays.copy(data, form), "r").items())
        batches = checks.take_batches(data)

        def rows(batch: Any) -> list[Any]:
            if one_by_one:
                return [np.stack([c[i] for i in batch.tolist()]) for c in columns.values()]
            order = np.argsort(batch)
            back, wanted = np.argsort(order), batch[order]
            return [column[wanted][back] for column in columns.values()]

        def work(check: bool) -> Outcome:
            return Outcome(sum(len(rows(batch)[0]) for batch in batches))

        return Job(work)

    return make


def take_numpy(form: str, *, anew: bool = False) -> Callable[[Data], Job]:
    """256 random rows of a mapped array. An npz cannot be mapped: its arrays are loaded into memory, once or (`anew`)
    for each batch."""

    def make(data: Data) -> Job:
        import numpy as np

        from benchmarks import checks

        def columns() -> list[Any]:
            loaded = np.load(arrays.copy(data, form), mmap_mode="r")
            is_one = isinstance(loaded, np.ndarray)
            return [loaded] if is_one else [loaded[name] for name in loaded.files]

        batches = checks.take_batches(data)
        batches = batches[:4] if anew else batches
        held = [] if anew else columns()

        def work(check: bool) -> Outcome:
            count = 0
            for batch in batches:
                taken = [column[batch] for column in held or columns()]
                count += len(taken[0])
            return Outcome(count)

        return Job(work)

    return make


def take_arrow(data: Data) -> Job:
    """256 random rows of a mapped array as a record batch of tensors, which is what penstock's take returns."""
    import numpy as np
    import pyarrow as pa

    from benchmarks import checks

    held = np.load(arrays.copy(data, "npy"), mmap_mode="r")
    batches = checks.take_batches(data)

    def taken(batch: Any) -> Any:
        tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(held[batch])
        return pa.RecordBatch.from_arrays([tensors], ["data"])

    def work(check: bool) -> Outcome:
        return Outcome(sum(len(taken(batch)) for batch in batches))

    return Job(work)


def take_fromfile(data: Data) -> Job:
    """256 random rows of an npy file, read one by one from an open file."""
    import numpy as np

    from benchmarks import checks

    path = arrays.copy(data, "npy")
    mapped = np.load(path, mmap_mode="r")
    start, size, dtype = mapped.offset, mapped[0].nbytes, mapped.dtype
    count, shape = size // dtype.itemsize, mapped.shape[1:]
    file = open(path, "rb", buffering=0)
    batches = [batch.tolist() for batch in checks.take_batches(data)]

    def row(number: int) -> Any:
        file.seek(start + number * size)
        return np.fromfile(file, dtype, count)

    def work(check: bool) -> Outcome:
        taken = (np.stack([row(n) for n in batch]).reshape(-1, *shape) for batch in batches)
        return Outcome(sum(map(len, taken)))

    return Job(work)


def array_record(at_once: int) -> Callable[[Data], Job]:
    """Every payload, a fixed number per call, with its own threads; 1 means `read()` with its read-ahead."""

    def make(data: Data) -> Job:
        from array_record.python.array_record_module import ArrayRecordReader

        from benchmarks import checks

        path = str(containers.copy(data, "array_record"))

        def work(check: bool) -> Outcome:
            reader = ArrayRecordReader(path)
            count = total = 0
            for start in range(0, data.num_records, at_once):
                end = min(start + at_once, data.num_records)
                payloads = [reader.read()] if at_once == 1 else reader.read(start, end)
                count += len(payloads)
                total += checks.payload_sum(payloads) if check else 0
            reader.close()
            return Outcome(count, "payloads", total & checks.WRAP)

        return Job(work)

    return make


def array_record_take(data: Data) -> Job:
    """256 random payloads, by `seek` and `read` without read-ahead, which is its fastest way."""
    from array_record.python.array_record_module import ArrayRecordReader

    from benchmarks import checks

    options = "readahead_buffer_size:0,max_parallelism:0"
    reader = ArrayRecordReader(str(containers.copy(data, "array_record")), options)
    batches = [batch.tolist() for batch in checks.take_batches(data)]

    def one(number: int) -> bytes:
        reader.seek(number)
        return reader.read()

    def work(check: bool) -> Outcome:
        return Outcome(sum(len([one(number) for number in batch]) for batch in batches))

    return Job(work)


SIZES = ("small", "large")
HDF5 = ("hdf5-plain", "hdf5-gzip", "hdf5-lzf")
JOBS: dict[str, dict[str, Callable[[Data], Job]]] = {
    **{f"{form}-{size}": {"h5py": scan(form, _h5py)} for form in HDF5 for size in SIZES},
    **{
        f"npy-{size}": {
            "np.load": scan("npy", _numpy_whole),
            "np.load, mapped, slices copied": scan("npy", _numpy_mapped),
        }
        for size in SIZES
    },
    **{
        f"{form}-{size}": {"np.load": scan(form, _numpy_whole)}
        for form in ("npz", "npz-deflated")
        for size in SIZES
    },
    **{
        f"{form}-take-{size}": {
            "h5py, sorted lists": take_h5py(form, one_by_one=False),
            "h5py, row by row": take_h5py(form, one_by_one=True),
        }
        for form in HDF5
        for size in SIZES
    },
    **{
        f"npy-take-{size}": {
            "mapped": take_numpy("npy"),
            "mapped, as record batches": take_arrow,
            "np.fromfile": take_fromfile,
        }
        for size in SIZES
    },
    **{
        f"npz-take-{size}": {
            "in memory": take_numpy("npz"),
            "np.load for each batch": take_numpy("npz", anew=True),
        }
        for size in SIZES
    },
    **{
        f"arrayrecord-{size}": {"read(a, b)": array_record(1000), "read()": array_record(1)}
        for size in SIZES
    },
    **{f"arrayrecord-take-{size}": {"seek, read": array_record_take} for size in SIZES},
}
