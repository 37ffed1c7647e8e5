"""Writes an object, which appears whole or not at all.

Formats that only append send their bytes in parts while they write (`StreamedSink`). Others change bytes that they wrote
before, so theirs are collected in a temporary file of this machine and sent when the object is complete (`ObjectSink`).
A small object is sent by one request, which can demand that there is none of this name.

Before the first part is sent, a hidden object beside the new one notes which upload was begun. A killed process leaves
it, so the next run, or `penstock clean`, finds the upload and gives it up.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from penstock import _core
from penstock.engine.locks import Lock
from penstock.errors import StorageError, shown
from penstock.storage._spooled import SpooledSink
from penstock.storage.local_sink import temporary_beside

_PUT_BYTES = 64 << 20
"""Up to this size, an object that must not replace another is sent by one request."""
_PART_BYTES = 8 << 20
_EQUAL_PARTS = 1_000
"""So many parts have the same size, as some stores demand."""
_STEP_PARTS = 60
"""After so many further parts, parts grow by `_PART_BYTES`. So the most parts that stores take, 10,000, are 5 TiB."""

NOTE_BYTES = 64 << 10
"""No note is larger."""

Place = Callable[[str], tuple[_core.RemoteStore, str]]
"""Returns the client for a path, and the key of the object."""
Translated = Callable[[str], Any]
"""Converts the errors of the client for a path."""
Written = Callable[[str, _core.ObjectState], None]
"""Called with the path and the state of an object when it is there."""


def part_bytes(number: int) -> int:
    """The size of a part of an upload."""
    return _PART_BYTES * (1 + max(0, number - _EQUAL_PARTS) // _STEP_PARTS)


class _Upload:
    """An upload in parts. At most four parts are on their way, and one is collected."""

    def __init__(self, path: str, place: Place, translated: Translated) -> None:
        self._path, self._place, self._translated = path, place, translated
        self._note = temporary_beside(path)
        self._waiting = bytearray()
        self._parts = 0
        self._is_lost = False
        store, key = place(path)
        with translated(path):
            self._upload = store.upload(key)
        try:
            self._make_note()
        except BaseException:
            self.abort()
            raise

    @contextmanager
    def _asking(self) -> Generator[None]:
        """Requests of the upload. If the store fails, nothing more is asked of it: the note stays."""
        try:
            with self._translated(self._path):
                yield
        except StorageError:
            self._is_lost = True
            raise

    def _make_note(self) -> None:
        store, key = self._place(self._note)
        facts = {"name": os.path.basename(self._path), "upload": self._upload.id}
        try:
            with self._translated(self._note):
                store.put(key, json.dumps(facts).encode())
        except StorageError as error:
            if error.errno != errno.EACCES:  # else only data may be written, and the upload goes on
                raise

    def add(self, data: object) -> None:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        while len(view):
            room = part_bytes(self._parts) - len(self._waiting)
            self._waiting += view[:room]
            view = view[room:]
            if len(self._waiting) == part_bytes(self._parts):
                self._send()

    def _send(self) -> None:
        with self._asking():
            self._upload.part(self._parts, self._waiting)
        self._parts += 1
        self._waiting.clear()

    def end(self) -> None:
        """Send what is left."""
        if self._waiting:
            self._send()

    def complete(self) -> _core.ObjectState:
        with self._asking():
            state = self._upload.complete()
        self._forget_note()
        return state

    def abort(self) -> None:
        """Give the upload up. If that fails, the note stays."""
        with suppress(StorageError):
            if not self._is_lost:
                with self._asking():
                    self._upload.abort()
                self._forget_note()

    def _forget_note(self) -> None:
        store, key = self._place(self._note)
        with suppress(StorageError), self._translated(self._note):
            store.delete(key)


def give_up(path: str, place: Place, translated: Translated) -> None:
    """Abort the upload that a killed process noted at `path`, and remove the note."""
    store, key = place(path)
    with translated(path):
        try:
            text = store.first(key, 0, NOTE_BYTES).wait().to_bytes()
        except _core.StoreError as error:
            if error.args[0] == "missing":
                return
            raise
        name, upload = noted(text)
        if name and upload:
            other, data_key = place(os.path.join(os.path.dirname(path), name))
            other.upload(data_key, upload).abort()
        store.delete(key)


def noted(text: bytes) -> tuple[str, str]:
    """The name and the upload of a note; empty if it is none."""
    with suppress(ValueError, KeyError, TypeError):
        facts = json.loads(text)
        name, upload = facts["name"], facts["upload"]
        if isinstance(name, str) and isinstance(upload, str) and "/" not in name:
            return name, upload
    return "", ""


class _Waiting:
    """The bytes of finished small objects that wait for their commit: in one temporary file of the process, because it may
    have few open files, and all shards of a call wait for the last one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget()

    def _forget(self) -> None:
        self._file: Any = None
        self._pid = os.getpid()
        self._end = self._count = 0

    def add(self, data: bytes) -> tuple[Any, int, int]:
        """Keep bytes. Returns the file, their place and their length."""
        with self._lock:
            if self._pid != os.getpid():
                self._forget()  # the parent of this process writes to its file
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="penstock-")  # noqa: SIM115  for all sinks
            start, done = self._end, 0
            while done < len(data):
                done += os.pwrite(self._file.fileno(), data[done:], start + done)
            self._end += len(data)
            self._count += 1
            return self._file, start, len(data)

    def drop(self, file: Any) -> None:
        """One of the objects needs its bytes no more. The file goes with the last one."""
        with self._lock:
            if file is self._file and self._pid == os.getpid():
                self._count -= 1
                if not self._count:
                    self._file.close()
                    self._forget()


_WAITING = _Waiting()


class ObjectSink(SpooledSink):
    """An object being written."""

    def __init__(
        self,
        path: str,
        place: Place,
        translated: Translated,
        written: Written,
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
        super().__init__(path)
        self._small: tuple[Any, int, int] | None = None

    def finish(self) -> None:
        if self._small is None and self._file.seek(0, os.SEEK_END) <= _PUT_BYTES:
            self._file.seek(0)
            self._small = _WAITING.add(self._file.read())
            self._file.close()

    def commit(self, path: str | None = None) -> None:
        self.path = path or self.path
        self.finish()
        if self._small is None:
            self._complete(self._begin_upload())
        else:
            file, start, length = self._small
            data = os.pread(file.fileno(), length, start)
            store, key = self._place(self.path)
            with self._translated(self.path):
                state = store.put(key, data, create=not self._overwrite)
            self._written(self.path, state)
        self._close()

    def abort(self) -> None:
        self._close()

    def _close(self) -> None:
        self._file.close()
        small, self._small = self._small, None
        if small is not None:
            _WAITING.drop(small[0])

    def _begin_upload(self) -> _Upload:
        """Begin to send what was collected."""
        upload = _Upload(self.path, self._place, self._translated)
        try:
            self._file.seek(0)
            while data := self._file.read(_PART_BYTES):
                upload.add(data)
        except BaseException:
            upload.abort()
            raise
        return upload

    def _complete(self, upload: _Upload) -> None:
        try:
            upload.end()
            if not self._overwrite:
                # A race remains: stores cannot complete an upload on condition that there is no object.
                self._refuse_existing(self.path)
            state = upload.complete()
        except BaseException:
            upload.abort()
            raise
        self._written(self.path, state)

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


class StreamedSink(ObjectSink):
    """An object whose bytes are sent while it is written, once they are too many for one request."""

    def __init__(
        self,
        path: str,
        place: Place,
        translated: Translated,
        written: Written,
        *,
        overwrite: bool,
    ) -> None:
        super().__init__(path, place, translated, written, overwrite=overwrite)
        self._room = _PART_BYTES if overwrite else _PUT_BYTES
        self._upload: _Upload | None = None

    def write(self, data: object) -> None:
        if self._upload is not None:
            self._upload.add(data)
            return
        self._room -= self._file.write(data)
        if self._room < 0:
            self._upload = self._begin_upload()
            self._file.close()

    def patch(self, start: int, data: object) -> None:
        assert self._upload is None, "bytes that were sent cannot be patched"
        super().patch(start, data)

    def repeat(self, start: int, length: int) -> None:
        assert self._upload is None, "bytes that were sent are not here"
        super().repeat(start, length)

    def finish(self) -> None:
        if self._upload is None:
            super().finish()
        else:
            self._upload.end()

    def commit(self, path: str | None = None) -> None:
        if self._upload is None:
            super().commit(path)
            return
        assert path in (None, self.path), "the name of an object that is being sent is final"
        upload, self._upload = self._upload, None
        self._complete(upload)

    def abort(self) -> None:
        super().abort()
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.abort()
