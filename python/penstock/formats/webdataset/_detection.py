"""Detects tar archives from their first bytes."""

from __future__ import annotations

from penstock import _core

_BLOCK = 512


def is_archive(head: bytes, size: int) -> bool:
    """Whether a file starts like an archive: with a header, or with only zeros."""
    if len(head) < _BLOCK:
        return False
    if not any(head):
        return size % _BLOCK == 0 and size <= 10240
    return _core.is_tar_head(_core.Buffer.from_bytes(head))


def inflates_to_archive(head: bytes) -> bool:
    if head[:2] != b"\x1f\x8b":
        return False
    inflater = _core.Inflater("gzip", 0)
    data, plain = _core.Buffer.from_bytes(head), b""
    try:
        while len(plain) < _BLOCK and not inflater.finished:
            part, consumed = inflater.push(data, False, _BLOCK - len(plain))
            if not len(part) and not consumed:
                break
            plain += part.to_bytes()
            data = data.slice(consumed, len(data))
    except _core.KernelError:
        return False
    return is_archive(plain, len(plain))
