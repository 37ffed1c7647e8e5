"""Finds out what a file is that penstock has refused. For example, it may be a web page in place of a download."""

from __future__ import annotations

import codecs
import json
import os
import zlib
from typing import NamedTuple

from penstock.errors import command
from penstock.storage.urls import is_url

LOOK_BYTES = 4096
_ZIP = b"PK\x03\x04"
_FIRST_NAME = 256
"""The bytes in which the name of the first file of a zip archive is looked for."""
_GZIP = b"\x1f\x8b"
_FROM_PROGRAM = "ps.write(...) its contents in the program that made it"
_MAGICS = (
    (b"PENSTOCK", "an index of penstock, which belongs to a data file", "open the data file, whose name it has without the dot and .penstock"),
    (_ZIP, "a zip archive", "unpack it first"),
    (b"%PDF-", "a PDF document", None),
    (b"SQLite format 3\0", "an SQLite database", None),
    (b"\x80\x02", "a pickle, which could run code", _FROM_PROGRAM),
    (b"\x80\x03", "a pickle, which could run code", _FROM_PROGRAM),
    (b"\x80\x04", "a pickle, which could run code", _FROM_PROGRAM),
    (b"\x80\x05", "a pickle, which could run code", _FROM_PROGRAM),
)  # fmt: skip
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG\r\n")
_OPEN_PICTURES = (
    'open(..., format="imagefolder") with its folder, or decode_images([...]) with its bytes'
)
_DOWNLOAD = "download it again: this is a server's reply, not the file"


class Look(NamedTuple):
    """What a file looks like, and what to do about it."""

    what: str
    hint: str | None


def looks_like(head: bytes, tail: bytes, path: str) -> Look | None:
    """What a file of an unknown format appears to be, from its first and last bytes (up to LOOK_BYTES each). None if
    they do not show it. `path` is used in hints."""
    if (look := _binary(head)) is not None:
        return look
    if head.startswith(_GZIP):
        inside = _inflated(head)
        if inside.startswith(_GZIP):
            return Look(
                "gzip in gzip", f"{command('gzip', '-dc', path)} > FILE, which removes one layer"
            )
        # The end of a gzip file does not show the end of its contents, so only the start is examined.
        look = _text(inside, path) if is_text(inside) else None
        return None if look is None else Look(f"{look.what}, gzipped", look.hint)
    return _text(head, path) if is_text(head) and is_text(tail, cut=True) else None


def own_file(path: str) -> Look | None:
    """What a file of penstock is that belongs to data, from its name. None for any other file."""
    folder, name = os.path.split(path)
    base, within = os.path.split(folder)
    if name.endswith(".overlay") and within.endswith(".penstock-fields"):
        data = within.removeprefix(".").removesuffix(".penstock-fields")
        what = f"the fields {name.removesuffix('.overlay')!r}, which belong to the data file {data}"
        beside = os.path.join(base, data)
        if is_url(path) or os.path.lexists(beside):
            return Look(what, f"open {beside}, which shows these fields, too")
        return Look(what, f"open {data} with overlays=, which shows these fields, too")
    if name.startswith(".penstock-") and name.endswith(".json"):
        return Look(
            "the journal of an unfinished job of penstock",
            "repeat that command, which continues; penstock clean --remove removes what is left of it",
        )
    return None


def _binary(head: bytes) -> Look | None:
    if head.startswith(_ZIP) and b"/data.pkl" in head[:_FIRST_NAME]:
        return Look("a file of torch.save, a pickle, which could run code", _FROM_PROGRAM)
    for magic, what, hint in _MAGICS:
        if head.startswith(magic):
            return Look(what, hint)
    if head.startswith(_PICTURES) or head[:4] + head[8:12] == b"RIFFWEBP":
        return Look("a picture", _OPEN_PICTURES)
    return None


def is_of_another_program(head: bytes) -> bool:
    """Whether a file begins like a web page, a picture, a document or the like, which cannot be a damaged shard."""
    page = head.lstrip().lower().startswith((b"<!doctype html", b"<html"))
    kinds = [magic for magic, _, hint in _MAGICS if hint is None]
    return page or head.startswith((*_PICTURES, *kinds))


def is_text(data: bytes, *, cut: bool = False) -> bool:
    """Whether bytes are UTF-8 text. The last character may be incomplete, and with `cut` also the first."""
    if cut:
        data = data.lstrip(bytes(range(0x80, 0xC0)))
    try:
        codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return bool(data) and not any(byte < 32 and byte not in b"\t\n\f\r\x1b" for byte in data)


def _inflated(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, LOOK_BYTES)
    except zlib.error:
        return b""


def _text(head: bytes, path: str) -> Look:
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lower = start[:512].lower()
    if lower.startswith(b"version https://git-lfs"):
        return Look("a Git LFS pointer", "git lfs pull, which downloads the file itself")
    if lower.startswith(b"<") and (b"<html" in lower or lower.startswith(b"<!doctype html")):
        return Look("an HTML page", _DOWNLOAD)
    if lower.startswith(b"<"):
        return Look("an XML document", _DOWNLOAD)
    lines = start.splitlines()
    if start.startswith((b"{", b"[")):
        if _is_json(lines[0]) and start.startswith(b"{"):
            made = f"ps.write(pyarrow.json.read_json({path!r}), ...)"
            return Look("lines of JSON", f"{made}, which writes them as records")
        made = f"ps.write(json.load(open({path!r})), ...)"
        return Look("JSON", f"{made}, which writes a list of objects as records")
    if delimiter := _delimiter(lines):
        options = f", parse_options=pyarrow.csv.ParseOptions(delimiter={delimiter!r})"
        mark = "" if delimiter == "," else options
        made = f"ps.write(pyarrow.csv.read_csv({path!r}{mark}), ...)"
        return Look("CSV", f"{made}, which writes its rows as records")
    made = f'ps.write([{{"text": line}} for line in open({path!r})], ...)'
    return Look("text", f"{made}, which writes its lines as records")


def _delimiter(lines: list[bytes]) -> str:
    """The delimiter of a CSV file, from its first two lines; empty if it is not CSV."""
    if len(lines) < 2:
        return ""
    mark = max((b",", b"\t", b";"), key=lines[0].count)
    return mark.decode() if lines[0].count(mark) == lines[1].count(mark) > 0 else ""


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


# -- checksums of other writers -------------------------------------------------------------------


_HEAD_BYTES = 12
_LEAST_BYTES = 16
_ENOUGH_FRAMES = 3


def has_foreign_checksums(head: bytes, size: int) -> bool:
    """Whether a file of `size` bytes that starts with `head` has the frames of a TFRecord but not its checksums: its
    writer left them out or computed different ones."""
    from penstock import _core

    at = frames = 0
    while at + _HEAD_BYTES <= len(head):
        length = int.from_bytes(head[at : at + 8], "little")
        stored = int.from_bytes(head[at + 8 : at + 12], "little")
        crc = _core.Buffer.from_bytes(head[at : at + 8]).crc32c()
        masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
        if stored == masked or at + _LEAST_BYTES + length > size:
            return False
        if stored in (0, crc, zlib.crc32(head[at : at + 8])):
            return True
        at += _LEAST_BYTES + length
        frames += 1
    return frames >= _ENOUGH_FRAMES or (at == size and frames > 0)
