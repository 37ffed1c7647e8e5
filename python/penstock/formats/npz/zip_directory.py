r"""The directory of a zip archive: which members there are, and where their bytes lie.

Specification: PKWARE's APPNOTE.TXT 6.3.10.

    bytes            what
    per member       "PK\3\4", 26 bytes, name, extra fields; then the member's bytes
    per member       "PK\1\2", 42 bytes, name, extra fields, comment: the central directory
    56, 20           "PK\6\6" and "PK\6\7" where a number needs 64 bits (zip64)
    22 + comment     "PK\5\6": how many members, and where the directory is

All of it is claims. A member must lie before the directory, no two may share bytes (so an archive
cannot unfold into more than its bytes can), and each is called the same in both places. Names are
names of fields here; none ever touches the file system.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import FormatError, TruncatedError, UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Source

STORED, DEFLATED = 0, 8
LOCAL = struct.Struct("<4sHHHHHIIIHH")
"""Magic, version, flags, method, time, date, CRC-32, sizes packed and plain, lengths of name and
extra fields."""
CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
END = struct.Struct("<4sHHHHIIH")
LOCATOR = struct.Struct("<4sIQI")
END_64 = struct.Struct("<4sQHHIIQQQQ")
ZIP64 = 1
UTF8_NAME = 0x800
_ENCRYPTED = 0x41
_ALL_32, _ALL_16 = 0xFFFFFFFF, 0xFFFF
_MOST_COMMENT = 0xFFFF


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, how it is packed, and where its bytes are in the file."""

    name: str
    method: int
    crc: int
    packed_bytes: int
    plain_bytes: int
    start: int
    header_start: int


@dataclass(frozen=True, slots=True)
class Directory:
    """What an archive holds, in the order of its directory."""

    members: tuple[Member, ...]
    comment: bytes


def read_directory(source: Source, limits: Limits) -> Directory:
    """Read and check the directory of an archive.

    Raises:
        FormatError, TruncatedError, LimitError: it is not sound.
        UnsupportedError: the archive is in several parts, or encrypted.
    """
    end, start, size, count, comment = _end(source)
    limits.check("footer_bytes", size)
    # Other bytes may stand in front of the archive, such as another one: all its places count from its own start.
    shift = end - size - start
    if shift < 0 or count * CENTRAL.size > size:
        raise FormatError(
            "the archive's directory lies beyond its place",
            byte=end,
            found=f"{size} bytes at {start}",
        )
    start += shift
    data = source.read(start, size).to_bytes()
    members: list[Member] = []
    names: set[str] = set()
    at = 0
    for _ in range(count):
        member, at = _member(
            data, at, start, shift, lambda place: source.read(place, 1 << 10).to_bytes()
        )
        if member.name in names:
            raise FormatError(
                f"two members are called {member.name!r}", byte=start + at, hint="write it again"
            )
        names.add(member.name)
        members.append(member)
    if at != size:
        raise FormatError("the directory has bytes that belong to no member", byte=start + at)
    _check_places(members)
    return Directory(tuple(members), comment)


def _end(source: Source) -> tuple[int, int, int, int, bytes]:
    """Where the directory must have ended, where it starts, its size, its members, the comment."""
    size = source.size
    tail_bytes = min(size, END.size + _MOST_COMMENT)
    tail = source.read(size - tail_bytes, tail_bytes).to_bytes()
    at = len(tail)
    while True:
        at = tail.rfind(b"PK\5\6", 0, at)
        if at < 0:
            raise TruncatedError(
                "there is no zip directory at the end; the file was cut", byte=size
            )
        if at + END.size <= len(tail):
            fields = END.unpack_from(tail, at)
            if at + END.size + fields[7] == len(tail):
                break
    place = size - len(tail) + at
    _, disk, directory_disk, here, count, length, start, _ = fields
    comment = tail[at + END.size :]
    if _ALL_16 in (disk, directory_disk, here, count) or _ALL_32 in (length, start):
        locator = source.read(max(place - LOCATOR.size, 0), LOCATOR.size).to_bytes()
        if len(locator) == LOCATOR.size and locator[:4] == b"PK\6\7":
            _, disk, told, disks = LOCATOR.unpack(locator)
            # Right before its locator, unless it is longer than it need be.
            end_64 = max(place - LOCATOR.size - END_64.size, 0)
            if source.read(end_64, 4).to_bytes() != b"PK\6\6":
                end_64 = told
            head = source.read(end_64, END_64.size).to_bytes()
            if len(head) < END_64.size or head[:4] != b"PK\6\6" or disk or disks > 1:
                raise FormatError("no zip64 end of the directory where one should be", byte=end_64)
            _, _, _, _, disk, directory_disk, here, count, length, start = END_64.unpack(head)
            place = end_64
    if disk or directory_disk or here != count:
        raise UnsupportedError("a zip archive in several parts", byte=place)
    return place, start, length, count, comment


def _member(
    data: bytes, at: int, base: int, shift: int, read: Callable[[int], bytes]
) -> tuple[Member, int]:
    """The member whose entry stands at `at`, and where the next entry stands."""
    if at + CENTRAL.size > len(data) or data[at : at + 4] != b"PK\1\2":
        raise FormatError("no entry of a zip directory", byte=base + at, found=data[at : at + 4])
    fields = CENTRAL.unpack_from(data, at)
    flags, method, crc, packed, plain = fields[3], fields[4], fields[7], fields[8], fields[9]
    lengths, disk, header = fields[10:13], fields[13], fields[16]
    end = at + CENTRAL.size + sum(lengths)
    if end > len(data):
        raise FormatError("an entry of the zip directory is cut", byte=base + at)
    raw_name = data[at + CENTRAL.size :][: lengths[0]]
    extra = data[at + CENTRAL.size + lengths[0] :][: lengths[1]]
    plain, packed, header = _wide(extra, (plain, packed, header), base + at)
    try:
        name = raw_name.decode("utf-8" if flags & UTF8_NAME else "cp437")
    except UnicodeDecodeError:
        raise FormatError("a member's name is no UTF-8", byte=base + at) from None
    if not name or "\0" in name:
        raise FormatError("a member without a name, or with a NUL in it", byte=base + at)
    if flags & _ENCRYPTED:
        raise UnsupportedError(f"the member {name!r} is encrypted", byte=base + at)
    if disk:
        raise UnsupportedError("a zip archive in several parts", byte=base + at)
    header += shift
    start = _data_start(read(header), header, raw_name, flags)
    if start + packed > base:
        raise FormatError(f"the member {name!r} reaches into the directory", byte=header)
    if method == STORED and packed != plain:
        raise FormatError(f"the member {name!r} is stored, but in another size", byte=base + at)
    return Member(name, method, crc, packed, plain, start, header), end


def _wide(extra: bytes, numbers: tuple[int, int, int], place: int) -> tuple[int, int, int]:
    """The sizes and the place, those that need 64 bits from the zip64 extra field."""
    if _ALL_32 not in numbers:
        return numbers
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4 : at + 4 + length]
        at += 4 + length
        if kind != ZIP64:
            continue
        found = list(numbers)
        used = 0
        for n, number in enumerate(numbers):
            if number == _ALL_32 and used + 8 <= len(field):
                found[n] = int.from_bytes(field[used : used + 8], "little")
                used += 8
        return found[0], found[1], found[2]
    if all(number < _ALL_32 for number in numbers[:2]):
        raise FormatError("a member's place needs 64 bits and has none", byte=place)
    return numbers


def _data_start(head: bytes, place: int, name: bytes, flags: int) -> int:
    """Where a member's bytes start: behind the header that stands before them."""
    if len(head) < LOCAL.size or head[:4] != b"PK\3\4":
        raise FormatError("no member where the zip directory says", byte=place, found=head[:4])
    fields = LOCAL.unpack_from(head)
    if head[LOCAL.size :][: fields[9]] != name[: len(head) - LOCAL.size] or fields[9] != len(name):
        raise FormatError("a member has two names", byte=place, expected=name[:80])
    if (fields[2] ^ flags) & UTF8_NAME and not name.isascii():
        raise FormatError("a member's name is in two encodings", byte=place, expected=name[:80])
    return place + LOCAL.size + fields[9] + fields[10]


def _check_places(members: list[Member]) -> None:
    ordered = sorted(members, key=lambda member: member.header_start)
    for member, following in itertools.pairwise(ordered):
        if member.start + member.packed_bytes > following.header_start:
            raise FormatError(
                f"the members {member.name!r} and {following.name!r} share bytes",
                byte=following.header_start,
            )
