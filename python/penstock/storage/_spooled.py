"""Sinks whose bytes wait in a temporary file of this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from typing import Any

from penstock.storage.base import Sink


class SpooledSink(Sink):
    """A file whose bytes are collected before they are written elsewhere. Subclasses implement `commit`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: Any = tempfile.TemporaryFile(prefix="penstock-")  # noqa: SIM115  closed by commit or abort

    def write(self, data: object) -> None:
        self._file.write(data)

    def write_all(self, parts: Sequence[object]) -> None:
        for part in parts:
            self.write(part)

    def patch(self, start: int, data: object) -> None:
        self._file.seek(start)
        self._file.write(data)
        self._file.seek(0, os.SEEK_END)

    def repeat(self, start: int, length: int) -> None:
        self._file.seek(start)
        copied = self._file.read(length)
        self._file.seek(0, os.SEEK_END)
        self._file.write(copied)

    def finish(self) -> None:
        self._file.flush()

    def abort(self) -> None:
        self._file.close()
