"""What the writing jobs of all engines share: the proof that the file holds the rows."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from benchmarks.job import Outcome


def outcome(paths: list[Path], check: bool) -> Outcome:
    """Counts frames and payload bytes, which no order of fields inside a payload changes."""
    if not check:
        return Outcome(0)
    count = total = 0
    for path in paths:
        data = path.read_bytes()
        at = 0
        while at < len(data):
            length = struct.unpack_from("<Q", data, at)[0]
            at += 16 + length
            total += length
            count += 1
        if at != len(data):
            raise ValueError(f"{path.name}: ends in the middle of a frame")
    return Outcome(count, "bytes", total)


def remove(paths: list[Path]) -> None:
    """Removes what a round wrote, once it is on the disk, so that the next one starts clean."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.unlink()
