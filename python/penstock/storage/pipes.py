"""Data that a program prints: `ps.Pipe(["gsutil", "cat", "gs://bucket/x.tar"])`.

A program can be read from its beginning only, and once. So its output is collected in a temporary file without a name,
while it is open, and the records are read from there, in any order. There is no shell: the arguments are passed as they
are.
"""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

from penstock import _core
from penstock.errors import StorageError, UnsupportedError, shown
from penstock.storage.base import Sink, Source, Storage
from penstock.storage.storage_options import StorageOptions

_COPY_BYTES = 1 << 20
_NUMBERS = itertools.count()


class Pipe(os.PathLike[str]):
    """The output of a program, as a source.

    Args:
        arguments: the program and its arguments. They are passed as they are, without a shell.

    The program runs each time the data is opened. Its output is collected in a temporary file, in the folder `TMPDIR`,
    as long as it is open. If it ends with an error, so does opening, with the last line that it wrote to its standard
    error. Give several in a list for several shards.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "a.tfrecord", overwrite=True)
        >>> ps.open(ps.Pipe(["cat", "a.tfrecord"]))[1]
        {'id': 2}
    """

    def __init__(self, arguments: Sequence[str | os.PathLike[str]]) -> None:
        if isinstance(arguments, (str, bytes)) or not arguments:
            raise TypeError("ps.Pipe takes a list: the program and its arguments, without a shell")
        self.arguments = tuple(os.fsdecode(argument) for argument in arguments)
        self._number = next(_NUMBERS)

    def __fspath__(self) -> str:
        """A name for messages, without the queries of addresses."""
        import shlex  # slow to import, and rarely needed

        words = shlex.join(map(shown, self.arguments))
        return f"pipe {self._number}: {words}"

    def __repr__(self) -> str:
        return f"Pipe({list(map(shown, self.arguments))})"


def pipes_in(source: Any) -> Iterator[Pipe]:
    """The pipes in a source, which may be a list."""
    if isinstance(source, Pipe):
        yield source
    elif isinstance(source, (list, tuple)):
        for item in source:
            yield from pipes_in(item)


class PipeStorage(Storage):
    """The output of programs, by the names of their pipes."""

    def __init__(self, programs: Mapping[str, tuple[str, ...]]) -> None:
        self._programs = dict(programs)

    def __reduce__(self) -> tuple[Any, ...]:
        if any(shown(word) != word for words in self._programs.values() for word in words):
            StorageOptions().refuse_signed()
        return PipeStorage, (self._programs,)

    def source(self, path: str, *, mmap: bool = False) -> Source:
        if path not in self._programs:
            raise FileNotFoundError(path)
        return _Collected(path, self._programs[path])

    def sink(self, path: str, *, overwrite: bool = False) -> Sink:
        raise UnsupportedError("penstock does not write to programs", file=path)

    def list(self, folder: str) -> list[str]:
        return []

    def exists(self, path: str) -> bool:
        return path in self._programs


class _Collected(Source):
    """The whole output of a program."""

    def __init__(self, path: str, arguments: Sequence[str]) -> None:
        self.path = path
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="penstock-pipe-")  # noqa: SIM115  close() closes it
        try:
            _run(path, arguments, self._file)
        except BaseException:
            self._file.close()
            raise
        self.size = self._file.seek(0, os.SEEK_END)

    def read(self, start: int, length: int) -> _core.Buffer:
        length = max(0, min(length, self.size - start))
        return _core.Buffer.from_bytes(os.pread(self._file.fileno(), length, start))

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        self.close()


def _run(path: str, arguments: Sequence[str], target: IO[bytes]) -> None:
    """Run a program, and collect its output. No process is left, however this ends."""
    import subprocess  # slow to import, and rarely needed

    with tempfile.TemporaryFile(prefix="penstock-pipe-") as errors:
        try:
            program = subprocess.Popen(  # noqa: S603  the caller's own, without a shell
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            message = f"the program cannot be started: {error.strerror}"
            raise StorageError(message, file=path) from None
        assert program.stdout is not None
        try:
            # Through a pipe: if this process is killed, the program ends when it next writes.
            status = _collected(program, program.stdout.fileno(), target)
        except BaseException:
            _kill(program)
            raise
        finally:
            program.stdout.close()
        if status:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines()
            last = f": {_without_queries(lines[-1], arguments)}" if lines else ""
            raise StorageError(f"the program ended with status {status}{last}", file=path)


def _collected(program: Any, output: int, target: IO[bytes]) -> int:
    """Copy the output of a program, and return its status. Ctrl-C ends this at once: where another library, such as
    polars, has set the signal's handler, the system goes on with a read or a wait after the signal, but not with a
    select."""
    import select  # rarely needed
    from subprocess import TimeoutExpired

    while True:
        select.select([output], [], [])
        if not (data := os.read(output, _COPY_BYTES)):
            break
        target.write(data)
    while True:
        with suppress(TimeoutExpired):
            return program.wait(0.1)


def _kill(program: Any) -> None:
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()


def _without_queries(text: str, arguments: Sequence[str]) -> str:
    for word in arguments:
        text = text.replace(word, shown(word))
    return text
