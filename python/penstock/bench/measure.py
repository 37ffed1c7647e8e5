"""Repeats, their spread, memory, and what the machine was doing meanwhile."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import hashlib
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_PROBED = b"\x5a" * (4 << 20)
_MOST_CALLS = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """One quantity, measured several times."""

    median: float
    least: float
    most: float
    repeats: int

    @property
    def spread(self) -> float:
        """How far apart the repeats lie, as a part of their median."""
        return (self.most - self.least) / self.median if self.median else 0.0


def measured(values: Sequence[float]) -> Measured:
    """The median of some repeats, and how far they lie apart."""
    return Measured(statistics.median(values), min(values), max(values), len(values))


def seconds_of(call: Callable[[], Any], least_seconds: float = 0.0) -> float:
    """Seconds of one call; of a quick one the mean of as many as take `least_seconds`."""
    start, passed = time.perf_counter(), 0.0
    for done in range(1, _MOST_CALLS + 1):
        call()
        passed = time.perf_counter() - start
        if passed >= least_seconds:
            return passed / done
    return passed / _MOST_CALLS


# -- memory ---------------------------------------------------------------------------------------


def growth_of(call: Callable[[], Any]) -> tuple[Any, int]:
    """What a call gives, and by how many bytes the memory of this process rose above what it was
    before, at the highest.

    That is the resident set: pages of files that are mapped count as well. Linux can forget the
    highest value so far; elsewhere only what rises above it is seen.
    """
    _give_back()
    resets = _forget_peak()
    before = _status("VmRSS") if resets else _highest()
    result = call()
    after = _status("VmHWM") if resets else _highest()
    return result, max(after - before, 0)


def _give_back() -> None:
    """Return memory that is free but kept, so that the growth after it is seen."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(
            ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6"), "malloc_trim", None
        )
        if trim is not None:
            trim(0)


def _forget_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def _highest() -> int:
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024


# -- the machine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it was measured."""

    cpu: str
    cores: int
    system: str
    python: str
    folder: str
    file_system: str
    """Of the folder where files were written, such as "ext4" or "tmpfs"; "" where unknown."""


def machine(folder: str) -> Machine:
    """This machine, with `folder` for temporary files."""
    system = f"{platform.system()} {platform.release()}"
    return Machine(_cpu(), cores(), system, platform.python_version(), folder, _file_system(folder))


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _file_system(folder: str) -> str:
    path = os.path.realpath(folder)
    best, found = "", ""
    try:
        with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
            for line in file:
                _, place, kind = line.split()[:3]
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(best):
                    best, found = place, kind
    except OSError:
        pass  # not Linux
    return found


# -- noise ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Noise:
    """How quiet the machine was."""

    probe: Measured
    """Seconds of one fixed piece of work on one core, repeated between the measurements."""
    load_before: float
    load_after: float
    cores: int

    def sentence(self, spreads: Sequence[float]) -> str:
        """How far the repeats lay apart, and what that may come from."""
        slower = self.probe.most / self.probe.least - 1
        said = (
            f"A fixed piece of work took {slower:.0%} longer at its slowest than at its quickest; "
            f"load {self.load_before:.1f} before, {self.load_after:.1f} after, on {self.cores} "
            f"{'core' if self.cores == 1 else 'cores'}."
        )
        if spreads:
            said = (
                f"Repeats lay {statistics.median(spreads):.0%} of their median apart in the "
                f"median row, {max(spreads):.0%} in the worst. {said}"
            )
        if slower > 0.25 or self.load_before > 0.7 * self.cores:
            said += " That is a busy machine: believe differences that are larger than this only."
        return said


class Listening:
    """Notes how noisy the machine is while something is measured."""

    def __init__(self) -> None:
        self._load = _load()
        self._probes: list[float] = []
        self.listen()

    def listen(self) -> None:
        """Time the fixed piece of work once more."""
        start = time.perf_counter()
        hashlib.blake2b(_PROBED).digest()
        self._probes.append(time.perf_counter() - start)

    def heard(self) -> Noise:
        """All of it so far."""
        self.listen()
        return Noise(measured(self._probes), self._load, _load(), cores())


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
