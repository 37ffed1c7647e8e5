"""Writes a zip archive of arrays with `zipfile`."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from typing import Any

from penstock.formats.npz.zip_directory import DEFLATED, LOCAL, STORED
from penstock.storage.base import Sink

ALIGNMENT = 64
"""Alignment of stored arrays in the file, in bytes, for memory maps."""
_ZIP64_BYTES = 20
_PADDING = struct.Struct("<HH")
_PADDING_ID = 0xD935
"""The ID of an extra field that only pads the header, as zipalign writes."""


class _File:
    """A sink as the file that `zipfile` writes. `zipfile` goes back to write a member's sizes into its header."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._at = 0
        self._failed = False
        self.num_bytes = 0

    def write(self, data: Any) -> int:
        if self._failed or not data:
            return len(
                data
            )  # after an error, ignore what zipfile still writes to finish its archive
        try:
            if self._at < self.num_bytes:
                self._sink.patch(self._at, data)
            else:
                self._sink.write(data)
        except BaseException:
            self._failed = True
            raise
        self._at += len(data)
        self.num_bytes = max(self.num_bytes, self._at)
        return len(data)

    def seek(self, offset: int) -> None:
        self._at = offset

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        pass


def write_archive(
    sink: Sink, members: Iterable[tuple[str, Iterable[bytes]]], comment: bytes, level: int | None
) -> int:
    """Write an archive and return its size. Each member comes in parts. `level` is the deflate level; None stores
    members uncompressed. The same members always give the same bytes."""
    file = _File(sink)
    out: Any = file
    method = STORED if level is None else DEFLATED
    with zipfile.ZipFile(out, "w", method, compresslevel=level) as archive:
        archive.comment = comment
        for name, parts in members:
            info = zipfile.ZipInfo(name)
            if level is None:
                start = file.num_bytes + LOCAL.size + len(name.encode()) + _ZIP64_BYTES
                padding = -(start + _PADDING.size) % ALIGNMENT
                info.extra = _PADDING.pack(_PADDING_ID, padding) + bytes(padding)
            # zipfile applies the archive's level only if a member is opened by name.
            with archive.open(info if level is None else name, "w", force_zip64=True) as member:
                for part in parts:
                    member.write(part)
            info.extra = b""  # the directory needs no padding
    return file.num_bytes
