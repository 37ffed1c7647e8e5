"""The text index that DALI's `tfrecord2idx` makes: `<file>.idx`, one line a record.

```
offset size        offset of the frame in the file; bytes of the whole frame, 16 more than payload
```

It knows no checksums and nothing of its file, so penstock never reads through it. It writes one
for the programs that want one, and checks one against the heads in the file itself.
"""

from __future__ import annotations

import numpy as np

from penstock.errors import StaleIndexError, UnsupportedError
from penstock.framing.sidecar import Index
from penstock.storage import Storage

SUFFIX = ".idx"
_LINES = 1 << 16


def path_for(data_path: str) -> str:
    """Where the text index of a file is looked for: beside it."""
    return data_path + SUFFIX


def write(index: Index, path: str, storage: Storage) -> None:
    """Write the text index of an uncompressed file, replacing one that is there.

    Raises:
        UnsupportedError: the file is compressed; a text index cannot point into it.
    """
    if index.compression:
        raise UnsupportedError(
            f"a text index gives offsets in the file, and this one is {index.compression}",
            file=path,
        )
    sizes = index.ends - index.starts[: index.num_records]
    sink = storage.sink(path, overwrite=True)
    try:
        for first in range(0, index.num_records, _LINES):
            last = first + _LINES
            starts = index.starts[first : min(last, index.num_records)].tolist()
            rows = zip(starts, sizes[first:last].tolist(), strict=True)
            sink.write("".join(f"{start} {size}\n" for start, size in rows).encode())
        sink.commit()
    except BaseException:
        sink.abort()
        raise


def read(path: str, storage: Storage) -> tuple[np.ndarray, np.ndarray]:
    """The offsets and sizes of a text index, two uint64 arrays.

    Raises:
        StaleIndexError: it is no text index.
    """
    source = storage.source(path)
    try:
        words = source.read(0, source.size).to_bytes().split()
    finally:
        source.close()
    try:
        numbers = np.array(words, dtype=np.bytes_).astype(np.uint64)
    except (ValueError, OverflowError):
        raise StaleIndexError("not a text index: it holds more than numbers", file=path) from None
    if len(numbers) % 2:
        raise StaleIndexError("not a text index: the last line is cut", file=path)
    return numbers[0::2], numbers[1::2]


def check(path: str, index: Index, data_path: str, storage: Storage) -> None:
    """Compare a text index with where the records of the file really lie.

    Raises:
        StaleIndexError: they differ; names the first record and byte where they do.
    """
    starts, sizes = read(path, storage)
    true_starts, true_ends = index.starts[: index.num_records], index.ends
    common = min(len(starts), index.num_records)
    same = (starts[:common] == true_starts[:common]) & (
        starts[:common] + sizes[:common] == true_ends[:common]
    )
    if same.all() and len(starts) == index.num_records:
        return
    record = int(np.argmin(same)) if not same.all() else common
    raise StaleIndexError(
        f"the text index is not one of {data_path}",
        file=path,
        record=record,
        byte=int(true_starts[record]) if record < index.num_records else None,
        expected=f"{index.num_records} records, as in the file",
        found=f"{len(starts)} lines, the first wrong one being line {record + 1}",
        hint=f"penstock index {data_path}",
    )
