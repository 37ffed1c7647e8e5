"""The limits of the machine itself: reading, copying, checksums, inflating, writing."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "limit"
VENV = "others"
PIECE_BYTES = 1 << 20


def mapped(path: Path) -> mmap.mmap:
    """A memory map of the file."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def crc_of_buffer(data: Data) -> Job:
    """One pass of CRC32C over the whole file, which stays mapped between the rounds."""
    from crc32c import crc32c

    buffer = mapped(data.plain)

    def work(check: bool) -> Outcome:
        crc32c(buffer)
        return Outcome(data.num_records)

    return Job(work)


def map_and_crc(data: Data) -> Job:
    """The same, but the file is mapped again in each round, as a reader has to do."""
    from crc32c import crc32c

    def work(check: bool) -> Outcome:
        with mapped(data.plain) as buffer:
            crc32c(buffer)
        return Outcome(data.num_records)

    return Job(work)


def in_pieces(use: Callable[[memoryview], Any]) -> Callable[[Data], Job]:
    """Calls read() into one small buffer again and again, and processes each piece."""

    def make(data: Data) -> Job:
        piece = memoryview(bytearray(PIECE_BYTES))

        def work(check: bool) -> Outcome:
            with open(data.plain, "rb", buffering=0) as file:
                while count := file.readinto(piece):
                    use(piece[:count])
            return Outcome(data.num_records)

        return Job(work)

    return make


def read_then_crc(data: Data) -> Job:
    """read() in pieces, CRC32C over each."""
    from crc32c import crc32c

    return in_pieces(crc32c)(data)


def memory_copy(data: Data) -> Job:
    """Copies the mapped file into memory that is already allocated."""
    import numpy as np

    source = np.frombuffer(mapped(data.plain), np.uint8)
    target = np.empty(1 << 26, np.uint8)

    def work(check: bool) -> Outcome:
        for start in range(0, len(source), len(target)):
            piece = source[start : start + len(target)]
            target[: len(piece)] = piece
        return Outcome(data.num_records)

    return Job(work)


def stream(module: str, function: str) -> Callable[[Data], Job]:
    """A file object that inflates the single-member file, read in pieces."""

    def make(data: Data) -> Job:
        import importlib

        opener = getattr(importlib.import_module(module), function)

        def work(check: bool) -> Outcome:
            total = 0
            with opener(data.gzip, "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    total += len(piece)
            if total != data.plain_bytes:
                raise ValueError(f"{total} bytes where the data has {data.plain_bytes}")
            return Outcome(data.num_records)

        return Job(work)

    return make


def libdeflate(shards: bool, threads: int) -> Callable[[Data], Job]:
    """libdeflate over whole files in memory, whose inflated size is known: no streaming inflater is faster."""

    def make(data: Data) -> Job:
        import deflate

        files = [p.read_bytes() for p in (data.gzip_shards if shards else [data.gzip])]

        def inflate(file: bytes) -> int:
            return len(deflate.gzip_decompress(file))

        def work(check: bool) -> Outcome:
            with ThreadPoolExecutor(threads) as pool:
                total = sum(pool.map(inflate, files))
            if total != data.plain_bytes:
                raise ValueError(f"{total} bytes where the data has {data.plain_bytes}")
            return Outcome(data.num_records)

        return Job(work)

    return make


def bare_write(folder_name: str, sync: bool = False) -> Callable[[Data], Job]:
    """Writes the finished bytes to a new file, in one call."""

    def make(data: Data) -> Job:
        source = data.plain.read_bytes()
        folder = Path(os.environ[folder_name])
        path = folder / f"limit-{sync}.tfrecord"

        def work(check: bool) -> Outcome:
            with open(path, "wb", buffering=0) as file:
                written = 0
                while written < len(source):
                    written += file.write(memoryview(source)[written:])
                if sync:
                    os.fsync(file.fileno())
            return Outcome(data.num_records)

        def after() -> None:
            with path.open("rb") as file:
                os.fsync(file.fileno())  # so that no round pays for the previous one
            path.unlink()

        return Job(work, after=after)

    return make


def slice_and_crc(data: Data) -> Job:
    """Views of a mapped file at known offsets, with the CRC32C of each payload."""
    import numpy as np
    from crc32c import crc32c

    from benchmarks import checks

    batches = [b.tolist() for b in checks.take_batches(data)]
    offsets = np.load(data.folder / "offsets.npy").tolist()
    buffer = memoryview(mapped(data.plain))

    def work(check: bool) -> Outcome:
        total = count = 0
        for batch in batches:
            payloads = [buffer[offsets[i] + 12 : offsets[i + 1] - 4] for i in batch]
            for payload in payloads:
                crc32c(payload)
            count += len(payloads)
            if check:
                total += checks.payload_sum(payloads)
        return Outcome(count, "take payloads", total)

    return Job(work)


def pread_and_crc(data: Data) -> Job:
    """One pread for each payload, into a buffer that is reused, and its CRC32C."""
    import numpy as np
    from crc32c import crc32c

    from benchmarks import checks

    batches = [b.tolist() for b in checks.take_batches(data)]
    offsets = np.load(data.folder / "offsets.npy").tolist()
    buffer = memoryview(bytearray(max(b - a for a, b in pairwise(offsets))))
    file = data.plain.open("rb", buffering=0)

    def work(check: bool) -> Outcome:
        total = count = 0
        number = file.fileno()
        for batch in batches:
            for i in batch:
                start = offsets[i] + 12
                payload = buffer[: offsets[i + 1] - 4 - start]
                os.preadv(number, [payload], start)
                crc32c(payload)
                if check:
                    total += checks.payload_sum([payload])
            count += len(batch)
        return Outcome(count, "take payloads", total)

    return Job(work)


def header_preads(data: Data) -> Job:
    """One pread of 12 bytes for each record, at known offsets."""
    import numpy as np

    offsets = np.load(data.folder / "offsets.npy").tolist()[:-1]

    def work(check: bool) -> Outcome:
        pread = os.pread
        with data.plain.open("rb") as file:
            number = file.fileno()
            for offset in offsets:
                pread(number, 12, offset)
        return Outcome(data.num_records)

    return Job(work)


def copy_by(command: str) -> Callable[[Data], Job]:
    """Copies the whole file to tmpfs with a program of the system."""

    def make(data: Data) -> Job:
        import subprocess

        path = Path(os.environ["BENCHMARKS_TMPFS"]) / f"fields-{command}"
        line = (
            f'cat "{data.plain}" > "{path}"' if command == "cat" else f'cp "{data.plain}" "{path}"'
        )

        def work(check: bool) -> Outcome:
            subprocess.run(line, shell=True, check=True)
            if check and path.stat().st_size != data.plain_bytes:
                raise ValueError(f"{command} wrote {path.stat().st_size} bytes")
            return Outcome(data.num_records)

        def remove() -> None:
            path.unlink(missing_ok=True)

        return Job(work, before=remove, after=remove)

    return make


COPY = {"cat in > out": copy_by("cat"), "cp in out": copy_by("cp")}
SCAN = {
    "CRC32C of a buffer": crc_of_buffer,
    "mmap then CRC32C": map_and_crc,
    "read() in 1 MB pieces": in_pieces(len),
    "read() then CRC32C": read_then_crc,
    "memory copy": memory_copy,
}
TAKE = {"mmap slice and CRC32C": slice_and_crc, "pread and CRC32C": pread_and_crc}
INFLATE = {
    "libdeflate, 1 file, 1 thread": libdeflate(False, 1),
    "libdeflate, 4 files, 2 threads": libdeflate(True, 2),
}
JOBS = {
    "scan-small": SCAN,
    "scan-large": SCAN,
    "parse-small": {"CRC32C of a buffer": crc_of_buffer},
    "gzip-read": {
        "isal stream, 1 file, 1 thread": stream("isal.igzip", "open"),
        "zlib-ng stream, 1 file, 1 thread": stream("zlib_ng.gzip_ng", "open"),
        "zlib stream, 1 file, 1 thread": stream("gzip", "open"),
        **INFLATE,
    },
    "gzip-penstock": INFLATE,
    "write-small": {"one write()": bare_write("BENCHMARKS_TMPFS")},
    "write-small-disk": {
        "one write()": bare_write("BENCHMARKS_DISK"),
        "one write() and fsync": bare_write("BENCHMARKS_DISK", sync=True),
    },
    "take-small": TAKE,
    "take-large": TAKE,
    "index-build-small": {
        "read() in 1 MB pieces": in_pieces(len),
        "pread of every header": header_preads,
    },
    "index-build-large": {"pread of every header": header_preads},
    "fields-add-small": COPY,
    "fields-add-large": COPY,
    "fields-drop": COPY,
    "fields-replace": COPY,
}
