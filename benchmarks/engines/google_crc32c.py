"""What one can write in an afternoon: a Python loop over a mapped file and a fast CRC32C package.

For large records, it is faster than everything that TensorFlow offers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from benchmarks.data import Data
from benchmarks.engines.limit import mapped
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"
DELTA = 0xA282EAD8


def scan(data: Data) -> Job:
    """Every payload as bytes, both checksums compared."""
    from google_crc32c import value as crc32c

    from benchmarks import checks

    unpack = struct.Struct("<QI").unpack_from
    unpack_crc = struct.Struct("<I").unpack_from

    def records() -> Iterator[bytes]:
        with mapped(data.plain) as file:
            at, end = 0, len(file)
            while at < end:
                length, stored = unpack(file, at)
                crc = crc32c(file[at : at + 8])
                if ((crc >> 15 | crc << 17) + DELTA) & 0xFFFFFFFF != stored:
                    raise ValueError("length checksum")
                payload = file[at + 12 : at + 12 + length]
                crc = crc32c(payload)
                if ((crc >> 15 | crc << 17) + DELTA) & 0xFFFFFFFF != unpack_crc(
                    file, at + 12 + length
                )[0]:
                    raise ValueError("data checksum")
                yield payload
                at += 16 + length

    def work(check: bool) -> Outcome:
        if check:
            return Outcome(data.num_records, "payloads", checks.payload_sum(records()))
        return Outcome(sum(1 for _ in records()))

    return Job(work)


def index(data: Data) -> Job:
    """Offsets and lengths as text lines, found by reading and seeking, as tfrecord2idx does."""
    target = data.copy("plain.idx")

    def work(check: bool) -> Outcome:
        count = at = 0
        with data.plain.open("rb") as file, target.open("w") as out:
            while head := file.read(8):
                length = struct.unpack("<Q", head)[0]
                file.seek(8 + length, 1)
                out.write(f"{at} {length + 16}\n")
                at += length + 16
                count += 1
        return Outcome(count)

    return Job(work)


JOBS = {
    "scan-small": {"Python loop over mmap": scan},
    "scan-large": {"Python loop over mmap": scan},
    "index-build-small": {"read and seek, as tfrecord2idx": index},
    "index-build-large": {"read and seek, as tfrecord2idx": index},
}
