"""Measures time and memory, and how noisy the machine was."""

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
from typing import Any, Protocol, TypeVar

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
        """The distance between the largest and the smallest repeat, relative to the median."""
        return (self.most - self.least) / self.median if self.median else 0.0


def measured(values: Sequence[float]) -> Measured:
    """Return the median and range of repeated measurements."""
    return Measured(statistics.median(values), min(values), max(values), len(values))


def seconds_of(call: Callable[[], Any], least_seconds: float = 0.0) -> float:
    """Return the seconds of one call. A quick call is repeated for `least_seconds`, and the mean is returned."""
    start, passed = time.perf_counter(), 0.0
    for done in range(1, _MOST_CALLS + 1):
        call()
        passed = time.perf_counter() - start
        if passed >= least_seconds:
            return passed / done
    return passed / _MOST_CALLS


# -- memory ---------------------------------------------------------------------------------------


def memory_growth_of(call: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a call, and the peak growth of this process's resident set during the call, in bytes.

    Pages of mapped files count. Linux can reset the recorded peak. On other systems, only growth above the earlier peak
    is measured.
    """
    _release_memory()
    resets = _reset_peak()
    before = _status("VmRSS") if resets else _peak()
    result = call()
    after = _status("VmHWM") if resets else _peak()
    return result, max(after - before, 0)


def _release_memory() -> None:
    """Return free memory to the system, so that later growth can be measured."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    if sys.platform == "linux":
        trim = getattr(
            ctypes.CDLL(ctypes.util.find_library("c") or "libc.so.6"), "malloc_trim", None
        )
        if trim is not None:
            trim(0)


def _reset_peak() -> bool:
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


def _peak() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -- the machine ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that ran the measurements."""

    cpu: str
    cores: int
    system: str
    python: str
    folder: str
    file_system: str
    """The file system of `folder`, such as "ext4" or "tmpfs"; "" if unknown."""


def machine(folder: str) -> Machine:
    """Return this machine, with `folder` for temporary files."""
    system = f"{platform.system()} {platform.release()}"
    return Machine(_cpu(), cores(), system, platform.python_version(), folder, _file_system(folder))


def cores() -> int:
    """Return the number of cores that this process may use."""
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
    """How busy the machine was."""

    probe: Measured
    """Seconds of a fixed computation on one core, repeated between the measurements."""
    load_before: float
    load_after: float
    cores: int

    def sentence(self, spreads: Sequence[float]) -> str:
        slower = self.probe.most / self.probe.least - 1
        said = (
            f"A fixed piece of work took {slower:.0%} longer at its slowest than at its quickest; "
            f"load {self.load_before:.1f} before, {self.load_after:.1f} after, on {self.cores} "
            f"{'core' if self.cores == 1 else 'cores'}."
        )
        if spreads:
            said = (
                f"Repeats differed by {statistics.median(spreads):.0%} of their median in the "
                f"median row, by {max(spreads):.0%} in the worst. {said}"
            )
        if slower > 0.25 or self.load_before > 0.7 * self.cores:
            said += " The machine was busy: trust only differences that are larger than this."
        return said


class NoiseProbe:
    """Times a fixed computation repeatedly, to see how noisy the machine is."""

    def __init__(self) -> None:
        self._load = _load()
        self._probes: list[float] = []
        self.run()

    def run(self) -> None:
        start = time.perf_counter()
        hashlib.blake2b(_PROBED).digest()
        self._probes.append(time.perf_counter() - start)

    def noise(self) -> Noise:
        self.run()
        return Noise(measured(self._probes), self._load, _load(), cores())


Progress = Callable[[str, float], None]
"""Called with the name of the current measurement, and the finished fraction of the work, from 0 to 1."""


class _Named(Protocol):
    name: str


_Candidate = TypeVar("_Candidate", bound=_Named)


def in_turns(
    candidates: Sequence[_Candidate],
    rounds: int,
    seconds: float,
    progress: Progress,
    measure: Callable[[_Candidate, int], None],
) -> Noise:
    """Call `measure(candidate, round)` for each candidate, round by round. Only the first round may begin after
    `seconds`."""
    begun = time.monotonic()
    probe = NoiseProbe()
    for number in range(rounds):
        if number and time.monotonic() - begun > seconds:
            break
        for place, one in enumerate(candidates):
            part = (number + place / len(candidates)) / rounds
            passed = (time.monotonic() - begun) / max(seconds, 1e-9)
            progress(one.name, max(part, min(passed, 1.0)))
            measure(one, number)
            probe.run()
    return probe.noise()


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
