"""Reads untrusted files, one after another, and reports the result of each.

Run as a program. It reads one JSON object per line from standard input, and writes one for each to standard output
before it opens the next file. So a file that kills the process by a signal, or never ends, is the one without an
answer. `tests/hostile/test_whole_corpus.py` and `tests/hostile/test_canaries.py` run it.

For each reading, it measures the CPU seconds of all threads (which do not grow on a busy machine) and how far the
resident memory grew, from a peak that is reset before each reading (`/proc/self/clear_refs`). While reading, it
watches Python's "audit events". Files that libraries open themselves raise none; if that matters, the kernel is asked
to report every file that is opened (`watched`).
"""

from __future__ import annotations

import ast
import ctypes
import gc
import json
import os
import re
import resource
import shutil
import struct
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps

ROOT = Path(__file__).resolve().parent.parent
ADDRESS_SPACE = 6 << 30
CPU_SECONDS = 600
LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for path in (
            sys.prefix,
            sys.base_prefix,
            sysconfig.get_path("stdlib"),
            str(ROOT / "python"),
            *(entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))),
        )
    }
)
LIBC = ctypes.CDLL(None, use_errno=True)


# -- what happens besides -------------------------------------------------------------------------

ALWAYS = (
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.putenv",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "os.chmod",
    "os.truncate",
    "subprocess.",
    "pickle.",
    "socket.",
    "urllib.",
    "http.",
    "webbrowser.",
    "ctypes.dlopen",
    "code.__new__",
    "function.__new__",
    "shutil.",
    "pty.",
)
"""Audit events that no reading may cause, except for writing sidecars."""
CODE = ("exec", "compile", "marshal.loads")
"""Audit events that only the import of a module may cause."""


class Audit:
    """The forbidden actions of Python while a file was read."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self._allowed: tuple[str, ...] | None = None
        self._own = ""
        sys.addaudithook(self._hook)

    def start(self, own: str, *allowed: str) -> None:
        """Begin to watch: files in `allowed` may be opened, and anything may happen in the folder `own`."""
        self.events = []
        self._own = os.path.realpath(own) + os.sep
        self._allowed = tuple(os.path.realpath(path) for path in allowed)

    def stop(self) -> list[str]:
        self._allowed = None
        return sorted(set(self.events))

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._allowed is None:
            return
        if event in ("open", "os.listdir", "os.scandir"):
            if not self._may_open(arguments[0]):
                self.events.append(f"{event} {arguments[0]!r}")
        elif event in CODE:
            if not _importing() and not (event == "compile" and _parses()):
                self.events.append(f"{event} {str(arguments[0])[:80]!r}")
        elif event.startswith(ALWAYS):
            names = [a for a in arguments if isinstance(a, str)]
            own = names and all(self._is_own(os.path.realpath(name)) for name in names)
            if not own and not _importing():
                self.events.append(f"{event} {arguments!r}"[:200])

    def _is_own(self, path: str) -> bool:
        return path.startswith(self._own) or self._is_lock(path)

    def _is_lock(self, path: str) -> bool:
        """Whether this is the lock that penstock makes in the user's cache while it builds the index of an allowed
        file, and then removes."""
        folder, name = os.path.split(path)
        found = re.fullmatch(r"\.(.+)\.[0-9a-f]{16}\.penstock\.lock\.penstock-tmp", name)
        assert self._allowed is not None
        return (
            found is not None
            and folder == os.path.join(os.environ["XDG_CACHE_HOME"], "penstock", "index")
            and found[1] in {os.path.basename(one) for one in self._allowed}
        )

    def _may_open(self, path: Any) -> bool:
        if path is None or isinstance(path, int):  # a descriptor that is open already
            return True
        real = os.path.realpath(os.fsdecode(path))
        assert self._allowed is not None
        if (
            real + os.sep == self._own
            or real in self._allowed
            or real.startswith((self._own, *LIBRARIES))
        ):
            return True
        if any(_is_sidecar(real, one) for one in self._allowed) or self._is_lock(real):
            return True
        # The folder of a requested file may be listed.
        return any(one.startswith(real + os.sep) and os.path.isdir(real) for one in self._allowed)


def _is_sidecar(path: str, of: str) -> bool:
    """Whether penstock uses this name for a file that it stores next to a data file."""
    folder, name = os.path.split(of)
    own = rf"{re.escape(folder)}/\.+{re.escape(name)}\.penstock.*"
    return re.fullmatch(own, path) is not None


def _importing() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _parses() -> bool:
    """Whether this is `ast.parse` of an npy header, which makes a syntax tree and runs nothing."""
    return sys._getframe(2).f_code is ast.parse.__code__


class Inotify:
    """The files that were opened, by any code, as the kernel reports them."""

    def __init__(self) -> None:
        self._descriptor = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._names: dict[int, str] = {}

    def watch(self, path: str) -> None:
        opened, accessed = 0x20, 0x1
        number = LIBC.inotify_add_watch(self._descriptor, os.fsencode(path), opened | accessed)
        if number < 0:
            raise OSError(ctypes.get_errno(), "inotify", path)
        self._names[number] = path

    def close(self) -> list[str]:
        """Returns the files that were opened."""
        found: set[str] = set()
        try:
            while data := os.read(self._descriptor, 1 << 16):
                at = 0
                while at < len(data):
                    number, _mask, _cookie, size = struct.unpack_from("iIII", data, at)
                    name = data[at + 16 : at + 16 + size].rstrip(b"\0").decode()
                    found.add(os.path.join(self._names[number], name).rstrip("/"))
                    at += 16 + size
        except BlockingIOError:
            pass
        os.close(self._descriptor)
        return sorted(found)


# -- what it costs --------------------------------------------------------------------------------


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) << 10
    raise LookupError(name)


def measured(audit: Audit, allowed: Sequence[str], work: Callable[[], Any]) -> dict[str, Any]:
    """Run a function. Returns its cost, and its exception if that is not one of penstock's errors."""
    gc.collect()  # this is fast, because the objects made by imports are frozen
    pa.default_memory_pool().release_unused()
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, begin, wall = _status("VmRSS"), time.process_time(), time.monotonic()
    found: dict[str, Any] = {}
    audit.start(*allowed)
    try:
        found = work()
    except Exception:  # unexpected exceptions are reported unchanged
        found = {"stray": traceback.format_exc(limit=-6)}
    found["events"] = audit.stop()
    found["seconds"] = time.process_time() - begin
    found["wall"] = time.monotonic() - wall
    found["bytes"] = max(0, _status("VmHWM") - before)
    return found


# -- reading --------------------------------------------------------------------------------------


def told(error: ps.PenstockError) -> dict[str, Any]:
    return {"error": type(error).__name__, "file": error.file, "text": str(error)}


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    return one.schema.equals(other.schema) and (
        one.equals(other)
        or one.to_string(preview_cols=10_000) == other.to_string(preview_cols=10_000)
    )


def without_url(table: pa.Table) -> pa.Table:
    return table.drop_columns(["__url__"]) if "__url__" in table.column_names else table


def record(batches: list[pa.RecordBatch], number: int) -> pa.Table:
    for batch in batches:
        if number < batch.num_rows:
            return pa.Table.from_batches([batch.slice(number, 1)])
        number -= batch.num_rows
    raise IndexError(number)


def read(path: str, index: str, keep: list[Any], **options: Any) -> dict[str, Any]:
    """Open, scan, count and take. The batches are stored in `keep`."""
    found: dict[str, Any] = {}
    try:
        dataset = ps.open(path, index=index, **options)
    except ps.PenstockError as error:
        return {**told(error), "when": "open"}
    batches: list[pa.RecordBatch] = keep
    try:
        found["names"] = dataset.schema.names
        found["format"] = dataset.shards[0].format
        for batch in dataset.scan():
            batch.validate(full=True)
            batches.append(batch)
        count = sum(batch.num_rows for batch in batches)
        found["num_records"] = count
    except ps.PenstockError as error:
        found.update(told(error), when="scan")
        count = None
    scanned = sum(batch.num_rows for batch in batches)
    try:
        length = len(dataset)
        whole = count is not None and "damage" not in options
        assert length == scanned if whole else length >= scanned, f"{length}, scanned {scanned}"
    except ps.PenstockError as error:
        assert count is None, f"scanned whole, but len: {error}"
        assert error.file == path, error
        return found
    if "damage" in options and count != length:
        return found  # the numbers of skipped records belong to no record of the scan
    numbers = sorted({0, scanned // 2, scanned - 1} & set(range(scanned)), reverse=True)
    if numbers:
        try:
            taken = dataset.take(numbers)
        except ps.PenstockError as error:
            assert count is None, f"scanned whole, but take: {error}"
            assert error.file == path, error
            return found
        table = taken if isinstance(taken, pa.Table) else pa.Table.from_batches([taken])
        for place, number in enumerate(numbers):
            one, other = table.slice(place, 1), record(batches, number)
            assert same(one, other), f"record {number}: take gives {one}, the scan {other}"
        as_dicts(dataset, path)
    return found


def as_dicts(dataset: ps.Dataset, path: str) -> None:
    """Records as Python values. Some types and values have no Python equivalent."""
    for asked in (lambda: dataset[0], lambda: list(dataset), lambda: dataset.__getitems__([0])):
        try:
            asked()
        except ps.PenstockError as error:
            assert error.file == path, error


def outcome(task: dict[str, Any], audit: Audit) -> dict[str, Any]:
    """Read one file by its own name, then by a neutral name."""
    path, own = task["path"], task["own"]
    keep: list[Any] = []
    allowed = (own, path, *task.get("beside", []))
    named = measured(audit, allowed, lambda: read(path, own, keep))
    answer = {"path": path, "named": named}
    if task.get("neutral"):
        neutral = os.path.join(own, "neutral")
        shutil.copyfile(path, neutral)
        for key, options in (("neutral", {}), ("asked", {"format": named.get("format")})):
            if key == "asked" and not (
                "format" in named and answer["neutral"].get("format") != named["format"]
            ):
                continue
            again: list[Any] = []
            answer[key] = measured(
                audit, (own, neutral), lambda o=options, a=again: read(neutral, own, a, **o)
            )
            if again and keep and answer[key].get("format") == named.get("format"):
                one, other = (without_url(pa.Table.from_batches(b)) for b in (keep, again))
                answer[key]["same"] = same(one, other)
    if task.get("skip"):
        skipped: list[Any] = []
        answer["skip"] = measured(audit, allowed, lambda: read(path, own, skipped, damage="skip"))
    return answer


def picture(task: dict[str, Any], audit: Audit) -> dict[str, Any]:
    """Decode one image."""
    path = task["path"]
    data = Path(path).read_bytes()

    def decoded() -> dict[str, Any]:
        try:
            pixels = ps.decode_images([data], mode="stored")
        except ps.PenstockError as error:
            return told(error)
        return {"shape": list(np.asarray(pixels[0]).shape), "pixels": int(pixels[0].nbytes)}

    return {"path": path, "named": measured(audit, (task["own"],), decoded)}


def hostile(task: dict[str, Any], audit: Audit) -> dict[str, Any]:
    """Read one file that refers to another one, with every given format, and without a format."""
    path, own = task["path"], task["own"]
    answer: dict[str, Any] = {"path": path, "readings": []}
    for options in task["options"]:
        kernel = Inotify()
        for watched in task["watched"]:
            kernel.watch(watched)
        keep: list[Any] = []
        found = measured(
            audit,
            (own, path, *task.get("beside", [])),
            lambda o=options, k=keep: read(path, "never", k, **o),
        )
        found["opened"] = kernel.close()
        found["values"] = repr([batch.to_pylist() for batch in keep])[:20_000]
        answer["readings"].append(found)
    return answer


WORK = {"file": outcome, "picture": picture, "hostile": hostile}


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = os.path.realpath(cache)
        _answer()


def _answer() -> None:
    for name in sys.argv[1:]:  # run everything that is imported or started at its first use
        for batch in ps.open(name, index="never").scan():
            batch.to_pylist()
            pa.Table.from_batches([batch]).to_string()
    ps.decode_images([b"P6 2 1 255 abcdef"])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    gc.collect()
    gc.freeze()
    audit = Audit()
    for line in sys.stdin:
        task = json.loads(line)
        os.makedirs(task["own"], exist_ok=True)
        print(json.dumps(WORK[task["kind"]](task, audit)), flush=True)


if __name__ == "__main__":
    main()
