"""The libraries of other containers: webdataset, msgpack, and for RecordIO a minimal loop by MXNet's rules. That loop
is faster than any release of MXNet: it reads through Python's buffered files and returns `bytes`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks import containers
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def _webdataset(path: str) -> Iterable[bytes]:
    import webdataset

    return (sample["bin"] for sample in webdataset.WebDataset(path, shardshuffle=False))


def _recordio(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while head := file.read(8):
            magic, word = struct.unpack("<II", head)
            assert magic == containers.RECORDIO_MAGIC
            length = word & (1 << 29) - 1
            part = file.read(length + -length % 4)[:length]
            if word >> 29 == 0:
                yield part
                continue
            parts = [part]
            while word >> 29 != 3:
                _, word = struct.unpack("<II", file.read(8))
                length = word & (1 << 29) - 1
                parts.append(file.read(length + -length % 4)[:length])
            yield head[:4].join(parts)


def _msgpack(path: str) -> Iterator[bytes]:
    import msgpack

    with open(path, "rb") as file:
        for record in msgpack.Unpacker(file, max_buffer_size=1 << 30):
            yield record["payload"]


def scan(suffix: str, read: Callable[[str], Iterable[bytes]]) -> Callable[[Data], Job]:
    """Every payload, one by one."""

    def make(data: Data) -> Job:
        from benchmarks import checks

        path = str(containers.copy(data, suffix))

        def work(check: bool) -> Outcome:
            if check:
                kept = list(read(path))
                return Outcome(len(kept), "payloads", checks.payload_sum(kept))
            return Outcome(sum(1 for _ in read(path)))

        return Job(work)

    return make


def _ends_recordio(path: str) -> Iterator[int]:
    with open(path, "rb") as file:
        for _ in _recordio_from(file):
            yield file.tell()


def _recordio_from(file: Any) -> Iterator[None]:
    while head := file.read(8):
        word = struct.unpack("<II", head)[1]
        length = word & (1 << 29) - 1
        file.seek(length + -length % 4, 1)
        if word >> 29 in (0, 3):
            yield None


def _ends_msgpack(path: str) -> Iterator[int]:
    import msgpack

    with open(path, "rb") as file:
        unpacker = msgpack.Unpacker(file, max_buffer_size=1 << 30)
        for _ in unpacker:
            yield unpacker.tell()


def take(suffix: str, ends: Callable[[str], Iterable[int]]) -> Callable[[Data], Job]:
    """Takes records at known offsets: seeks, reads and unpacks each."""

    def make(data: Data) -> Job:
        import msgpack

        from benchmarks import checks

        path = str(containers.copy(data, suffix))
        edges = [0, *ends(path)]
        batches = checks.take_batches(data)
        file = open(path, "rb")

        def one(number: int) -> Any:
            file.seek(edges[number])
            frame = file.read(edges[number + 1] - edges[number])
            if suffix == "msgpack":
                return msgpack.unpackb(frame)
            word = struct.unpack_from("<I", frame, 4)[0]
            return frame[8 : 8 + (word & (1 << 29) - 1)]

        def work(check: bool) -> Outcome:
            count = 0
            for batch in batches:
                count += len([one(number) for number in batch.tolist()])
            return Outcome(count)

        return Job(work)

    return make


SIZES = ("small", "large")
JOBS = (
    {f"tar-{size}": {"webdataset": scan("tar", _webdataset)} for size in SIZES}
    | {f"recordio-{size}": {"a bare loop": scan("rec", _recordio)} for size in SIZES}
    | {f"msgpack-{size}": {"msgpack.Unpacker": scan("msgpack", _msgpack)} for size in SIZES}
    | {f"recordio-take-{size}": {"seek, read": take("rec", _ends_recordio)} for size in SIZES}
    | {f"msgpack-take-{size}": {"seek, unpackb": take("msgpack", _ends_msgpack)} for size in SIZES}
)
