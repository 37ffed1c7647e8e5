"""Tar archives for the tests, made member by member."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable


def archive(members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> bytes:
    """An archive of regular files, as Python's tarfile writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, contents in members:
            tar.addfile(file(name, len(contents)), io.BytesIO(contents))
    return out.getvalue()


def file(name: str, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info


def member(name: str, contents: bytes = b"", **facts: object) -> bytes:
    """One member without an archive around it."""
    info = file(name, len(contents))
    for word, value in facts.items():
        setattr(info, word, value)
    return info.tobuf(tarfile.GNU_FORMAT) + contents + bytes(-len(contents) % 512)


END = bytes(1024)
