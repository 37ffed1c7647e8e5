"""Reads the directory of a zip archive with `zipfile`: the members, and where their bytes are. Specification: PKWARE's
APPNOTE.TXT 6.3.10.

A directory may be forged, and `zipfile` checks too little. Here each member must end before the directory. No two
members may share bytes, so an archive cannot inflate to more than its bytes allow. Names must be unique, and the same
in a member's own header and in the directory. The directory must list as many members as it counts. The names are only
names of fields, and never become file paths.
"""

from __future__ import annotations

import itertools
import struct
import zipfile
from dataclasses import dataclass
from typing import Any

from penstock.errors import FormatError, PenstockError, TruncatedError, UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Source
from penstock.storage.pyarrow_files import PositionedFile

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
LOCAL = struct.Struct("<4sHHHHHIIIHH")
"""The header before each member: magic, version, flags, method, time, date, CRC-32, compressed and plain size, lengths
of name and extra fields. The name and the extra fields follow."""
_END = struct.Struct("<4sHHHHIIH")
"""The end of the archive: magic, this disk, disk of the directory, members on this disk, members, size and position of
the directory, length of the comment. The comment follows."""
_UTF8_NAME = 0x800
_ENCRYPTED = 0x41
_TAIL_BYTES = (1 << 16) + _END.size
"""How many bytes `zipfile` searches for the end of an archive with a comment."""


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, its compression, and where its bytes are in the file."""

    name: str
    method: int
    crc: int
    packed_bytes: int
    plain_bytes: int
    start: int
    header_start: int


@dataclass(frozen=True, slots=True)
class Directory:
    """The members of an archive, in directory order."""

    members: tuple[Member, ...]
    start: int
    """Where the directory begins."""
    comment: bytes


class _File(PositionedFile):
    """An archive for `zipfile`. Its tail, which holds all of a small directory, is read in one request."""

    def __init__(self, source: Source, limits: Limits) -> None:
        super().__init__(source)
        self._limits = limits
        self._tail_start = max(source.size - _TAIL_BYTES, 0)
        self.tail = source.read(self._tail_start, _TAIL_BYTES).to_bytes()

    def read(self, length: int = -1) -> bytes:
        at = self._at - self._tail_start
        if at < 0:
            self._limits.check("footer_bytes", length)
            return super().read(length)
        data = self.tail[at:] if length < 0 else self.tail[at : at + length]
        self._at += len(data)
        return data


def read_directory(source: Source, limits: Limits) -> Directory:
    """Read and check the directory of an archive.

    Raises:
        FormatError, TruncatedError, LimitError: the directory is damaged, truncated or too large.
        UnsupportedError: the archive is encrypted, or in several parts.
    """
    file: Any = _File(source, limits)
    if b"PK\5\6" not in file.tail:
        message = "the file does not end with a zip directory; it was truncated"
        raise TruncatedError(message, byte=source.size)
    try:
        archive = zipfile.ZipFile(file)
    except PenstockError:
        raise
    except NotImplementedError as error:
        raise UnsupportedError(f"the zip archive uses an unsupported feature: {error}") from None
    except (zipfile.BadZipFile, struct.error, ValueError, OverflowError) as error:
        raise FormatError(f"the zip directory is damaged: {error}", byte=source.size) from None
    _check_end(file.tail, archive, source.size)
    members = [_member(info, archive.start_dir, source) for info in archive.infolist()]
    _check_places(members)
    return Directory(tuple(members), archive.start_dir, archive.comment)


def _check_end(tail: bytes, archive: zipfile.ZipFile, size: int) -> None:
    """Check the number of members that is stored at the end of an archive. `zipfile` ignores this number."""
    start = len(tail) - len(archive.comment) - _END.size
    magic, disk, directory_disk, here, count, _, _, length = _END.unpack_from(tail, start)
    if magic != b"PK\5\6" or length != len(archive.comment):
        raise TruncatedError("the file does not end where the zip directory ends", byte=size)
    found = len(archive.infolist())
    wide = 0xFFFF  # means that the number is stored elsewhere, in 64 bits
    if {disk, directory_disk} - {0, wide} or here != count:
        raise UnsupportedError("the zip archive has several parts", byte=size - len(tail) + start)
    if count not in (found, wide):
        message = "the zip directory does not list as many members as it counts"
        raise FormatError(message, byte=size, expected=f"{count} members", found=f"{found} members")


def _member(info: zipfile.ZipInfo, directory_start: int, source: Source) -> Member:
    name, place = info.orig_filename, info.header_offset
    if not name or "\0" in name:
        raise FormatError("a member has no name, or a NUL in its name", byte=place)
    if info.flag_bits & _ENCRYPTED:
        raise UnsupportedError(f"the member {name!r} is encrypted", byte=place)
    if info.volume:
        raise UnsupportedError("the zip archive has several parts", byte=place)
    start = _data_start(info, source)
    if start + info.compress_size > directory_start:
        raise FormatError(f"the member {name!r} overlaps the directory", byte=place)
    if info.compress_type == STORED and info.compress_size != info.file_size:
        raise FormatError(f"the member {name!r} is stored, but its two sizes differ", byte=place)
    return Member(
        name, info.compress_type, info.CRC, info.compress_size, info.file_size, start, place
    )


def _data_start(info: zipfile.ZipInfo, source: Source) -> int:
    """Return where the bytes of a member start: after its own header. Check that header's name."""
    name = info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8_NAME else "cp437")
    place = info.header_offset
    head = source.read(place, LOCAL.size + len(name)).to_bytes() if place >= 0 else b""
    if len(head) < LOCAL.size or head[:4] != b"PK\3\4":
        raise FormatError(
            "there is no member here, although the zip directory lists one",
            byte=place,
            found=head[:4],
        )
    _, _, flags, _, _, _, _, _, _, name_bytes, extra_bytes = LOCAL.unpack_from(head)
    if head[LOCAL.size :] != name or name_bytes != len(name):
        raise FormatError(
            "a member's name differs from the zip directory", byte=place, expected=name[:80]
        )
    if (flags ^ info.flag_bits) & _UTF8_NAME and not name.isascii():
        raise FormatError(
            "the encoding of a member's name differs from the zip directory",
            byte=place,
            expected=name[:80],
        )
    return place + LOCAL.size + name_bytes + extra_bytes


def _check_places(members: list[Member]) -> None:
    names: set[str] = set()
    for member, following in itertools.pairwise(sorted(members, key=lambda m: m.header_start)):
        if member.start + member.packed_bytes > following.header_start:
            raise FormatError(
                f"the members {member.name!r} and {following.name!r} share bytes",
                byte=following.header_start,
            )
    for member in members:
        if member.name in names:
            message = f"two members have the name {member.name!r}"
            raise FormatError(message, byte=member.header_start, hint="write the file again")
        names.add(member.name)
