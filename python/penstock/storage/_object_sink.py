"""Writes an object. Its bytes are collected in a temporary file of this machine, because many formats change bytes that
they wrote before, and are sent when the file is complete. The object appears whole or not at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from penstock import _core
from penstock.errors import shown
from penstock.storage.base import Sink

_PUT_BYTES = 64 << 20
"""Up to this size, an object is sent by one request, which can demand that there is none of this name."""
_PART_BYTES = 16 << 20
_MOST_PARTS = 10_000

Place = Callable[[str], tuple[_core.RemoteStore, str]]
"""Returns the client for a path, and the key of the object."""


class ObjectSink(Sink):
    """An object being written. `translated` converts the errors of the client for a path. `written` is called with the
    state of the object when it is there."""

    def __init__(
        self,
        path: str,
        place: Place,
        translated: Callable[[str], Any],
        written: Callable[[str, _core.ObjectState], None],
        *,
        overwrite: bool,
    ) -> None:
        self.path = path
        self._place = place
        self._translated = translated
        self._written = written
        self._overwrite = overwrite
        if not overwrite:
            self._refuse_existing(path)
        self._file: Any = tempfile.TemporaryFile(prefix="penstock-")  # noqa: SIM115  closed by commit or abort

    def write(self, data: object) -> None:
        self._file.write(data)

    def write_all(self, parts: Sequence[object]) -> None:
        for part in parts:
            self._file.write(part)

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

    def commit(self, path: str | None = None) -> None:
        self.path = path or self.path
        store, key = self._place(self.path)
        size = self._file.seek(0, os.SEEK_END)
        with self._translated(self.path):
            if size <= _PUT_BYTES:
                self._file.seek(0)
                state = store.put(key, self._file.read(), create=not self._overwrite)
            else:
                state = self._upload(store, key, size)
        self._written(self.path, state)
        self._file.close()

    def abort(self) -> None:
        self._file.close()

    def _upload(self, store: _core.RemoteStore, key: str, size: int) -> _core.ObjectState:
        length = max(_PART_BYTES, -(-size // _MOST_PARTS))
        upload = store.upload(key)

        try:
            for number, start in enumerate(range(0, size, length)):
                self._file.seek(start)
                upload.part(number, self._file.read(length))
            if not self._overwrite:
                # A race remains: stores cannot complete an upload on condition that there is no object.
                self._refuse_existing(self.path)
            return upload.complete()
        except BaseException:
            upload.abort()
            raise

    def _refuse_existing(self, path: str) -> None:
        store, key = self._place(path)
        try:
            with self._translated(path):
                store.head(key)
        except FileNotFoundError:
            return
        raise FileExistsError(
            errno.EEXIST, "the object exists; pass overwrite=True to replace it", shown(path)
        )
