"""Reads files with one of penstock's formats, each in a separate process, and reports the results.

Run as a program. It reads the names of files from standard input, one per line, and writes one JSON object per line
to standard output. If a hostile file kills its process by a signal, only that process dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.contract.format import Format, Options
from penstock.formats.arrow.format import ArrowFormat
from penstock.formats.parquet.format import ParquetFormat
from penstock.storage.local import LocalStorage

FORMATS: dict[str, Format] = {"parquet": ParquetFormat(), "arrow": ArrowFormat()}
ADDRESS_SPACE = 4 << 30
SECONDS = 30


def read_all(fmt: Format, path: str, **options: Any) -> pa.Table:
    """Every record of a file, through chunks and decode."""
    mmap = options.get("mmap", False)
    reader = fmt.open(LocalStorage().source(path, mmap=mmap), Options(**options))
    try:
        batches = [reader.decode(chunk, None, None) for chunk in reader.chunks()]
        table = pa.Table.from_batches(batches, schema=reader.schema)
        assert table.num_rows == reader.num_records
        return table
    finally:
        reader.close()


def read_by_pyarrow(name: str, path: str) -> pa.Table:
    if name == "parquet":
        import pyarrow.parquet as pq

        return pq.ParquetFile(path).read()
    try:
        return pa.ipc.open_file(path).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(path).read_all()


def same(one: pa.Table, other: pa.Table) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    return one.schema.equals(other.schema) and (
        one.equals(other) or repr(one.to_pydict()) == repr(other.to_pydict())
    )


def touch(table: pa.Table) -> None:
    """Look at every value: an invalid array crashes here, not when it is decoded."""
    for column in table.columns:
        for value in column:
            with contextlib.suppress(ValueError, OverflowError):  # a time beyond Python's years
                value.as_py()


def outcome(name: str, path: str, mmap: bool, compare: bool) -> dict[str, Any]:
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    found: dict[str, Any] = {}
    table = None
    try:
        table = read_all(FORMATS[name], path, mmap=mmap)
        found.update(names=table.schema.names, num_records=table.num_rows)
    except ps.PenstockError as error:
        found.update(error=type(error).__name__, message=str(error), file=error.file)
    except Exception as error:  # unexpected exceptions are reported unchanged
        found.update(stray=repr(error))
    found["seconds"] = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found["bytes"] = (after - before) * 1024
    if table is not None and compare:
        found["same"] = same(table, read_by_pyarrow(name, path))
    elif table is not None:
        touch(table)
    return found


def in_a_child(name: str, path: str, mmap: bool, compare: bool) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        with os.fdopen(writer, "w") as pipe:
            json.dump(outcome(name, path, mmap, compare), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    found = json.loads(text) if text else {}
    return {**found, "path": path, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}


if __name__ == "__main__":
    import pyarrow.parquet  # imported once, here, and not in every child

    for line in sys.stdin:
        kind, mapped, how, file = line.rstrip("\n").split("\t")
        print(json.dumps(in_a_child(kind, file, mapped == "mmap", how == "compare")), flush=True)
