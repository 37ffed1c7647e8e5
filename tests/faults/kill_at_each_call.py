"""Run by test_kept_types_kill. It repeats a job, killed at one system call after another, and prints what exists
after each kill, as JSON lines."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import penstock as ps

CALLS = ("open", "writev", "pwrite", "fsync", "rename", "replace", "link", "unlink", "utime")
MOST = 400


def rows(type_: pa.DataType, first: int) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + 6), type_)})


def old(folder: Path, name: str, **how: Any) -> None:
    ps.write(rows(pa.int8(), 0), folder / name, threads=1, **how)


def new(folder: Path, name: str, **how: Any) -> None:
    ps.write(rows(pa.int16(), 50), folder / name, threads=1, overwrite=True, **how)


def damaged(folder: Path, name: str) -> None:
    old(folder, name)
    path = folder / name
    told, data = path.stat(), bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))


def source(folder: Path, name: str) -> None:
    new(folder, f"source.{name.rsplit('.', maxsplit=1)[-1]}")
    old(folder, name)


def convert(folder: Path, name: str, **how: Any) -> None:
    made = folder / f"source.{name.rsplit('.', maxsplit=1)[-1]}"
    ps.convert(made, folder / name, overwrite=True, threads=1, **how)


def nothing(folder: Path, name: str) -> None:
    del folder, name


Does = Callable[[Path, str], Any]
WAYS: dict[str, tuple[Does, Does]] = {
    "write": (nothing, new),
    "replace": (old, new),
    "replace in a folder of indexes": (
        lambda folder, name: old(folder, name, index=str(folder / "kept")),
        lambda folder, name: new(folder, name, index=str(folder / "kept")),
    ),
    "shards": (
        lambda folder, name: old(folder, name, num_shards=2),
        lambda folder, name: new(folder, name, num_shards=2),
    ),
    "append a shard": (
        lambda folder, name: old(folder, f"0-{name}"),
        lambda folder, name: ps.append(rows(pa.int8(), 50), folder, shard="new", threads=1),
    ),
    "change fields": (
        old,
        lambda folder, name: ps.rename_fields(folder / name, {"n": "m"}, in_place=True),
    ),
    "repair": (damaged, lambda folder, name: ps.repair(folder / name, in_place=True)),
    "convert": (source, convert),
}


def kill_at(call: int) -> None:
    left = [call]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def one(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return real(*given, **named)

        return one

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def shown(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kept = folder / "kept"
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "source.")) or path.is_dir():
            continue
        ds = ps.open(path, damage="skip", index=str(kept) if kept.exists() else "auto")
        values = [next(iter(row.values())) for row in ds]
        found[path.name] = [ds.schema.names, str(ds.schema.types[0]), values]
    return found


def main(way: str, name: str, root: str) -> None:
    before, does = WAYS[way]
    for call in range(MOST):
        folder = Path(root) / str(call)
        folder.mkdir()
        before(folder, name)
        child = os.fork()
        if not child:
            kill_at(call)
            try:
                does(folder, name)
            except BaseException as error:
                print(json.dumps({"error": repr(error)}), flush=True)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(shown(folder)), flush=True)
        left = [p.name for p in folder.iterdir() if p.name.endswith(".penstock-tmp")]
        shutil.rmtree(folder)
        if status == 0:
            print(json.dumps({"left": left}))
            return
    raise AssertionError("it never ends")


if __name__ == "__main__":
    main(*sys.argv[1:])
