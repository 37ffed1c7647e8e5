"""npz archives with false claims, truncated or changed archives, and members that inflate to more than they claim."""

from __future__ import annotations

import io
import random
import struct
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest
from npz_files import lists_file, member, npz, opened, table

import penstock as ps


def zipped(**how: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how.pop("method", zipfile.ZIP_STORED)) as archive:
        for name, data in how.pop("members", {"x.npy": member()}).items():
            archive.writestr(name, data)
    return out.getvalue()


def changed(data: bytes, magic: bytes, offset: int, new: bytes) -> bytes:
    at = data.index(magic) + offset
    return data[:at] + new + data[at + len(new) :]


HOSTILE = {
    "another method": zipped(method=zipfile.ZIP_BZIP2),
    "encrypted": changed(zipped(), b"PK\1\2", 8, b"\1"),
    "a name of two kinds": changed(zipped(), b"PK\1\2", 46, b"y"),
    "a size too large": changed(zipped(), b"PK\1\2", 20, b"\xff\xff\0\0\xff\xff\0\0"),
    "stored in two sizes": changed(zipped(), b"PK\1\2", 24, b"\1"),
    "a place elsewhere": changed(zipped(), b"PK\1\2", 42, b"\7"),
    "a place beyond the file": changed(zipped(), b"PK\1\2", 42, b"\xff\xff\xff\x7f"),
    "a directory beyond the file": changed(zipped(), b"PK\5\6", 16, b"\xff\xff\xff\x7f"),
    "a directory of no size": changed(zipped(), b"PK\5\6", 12, b"\0\0\0\0"),
    "more members than there are": changed(zipped(), b"PK\5\6", 8, b"\xff\0\xff\0"),
    "several disks": changed(zipped(), b"PK\5\6", 4, b"\1"),
    "a version to come": changed(zipped(), b"PK\1\2", 6, b"\xff\0"),
    "a NUL in a name": zipped(members={"xyz.npy": member()}).replace(b"xyz.npy", b"x\0z.npy"),
    "a name that is not UTF-8": zipped(members={"é.npy": member()}).replace(
        "é".encode(), b"\xff\xff"
    ),
    "64 bits that are not there": changed(zipped(), b"PK\1\2", 20, b"\xff" * 8),
    "a comment that is cut": changed(zipped(), b"PK\5\6", 20, b"\3\0") + b"ab",
    "bytes behind the comment": zipped() + b"ab",
    "a member of no npy": zipped(members={"x.npy": b"not an array"}),
    "an empty member": zipped(members={"x.npy": b""}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_ends_in_an_error(name: str) -> None:
    with pytest.raises((ps.FormatError, ps.UnsupportedError)) as caught:
        table(HOSTILE[name])
    assert caught.value.file == "a.npz"


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("x.npy", member())
        archive.writestr("x.npy", member())
    with pytest.raises(ps.FormatError, match="two members"):
        opened(out.getvalue())


def test_members_that_share_bytes_are_refused() -> None:
    data = zipped(members={"x.npy": member(), "y.npy": member()})
    directory = data.index(b"PK\1\2")
    first = data[directory : directory + 46 + 5]
    end = data.rindex(b"PK\5\6")
    twice = first + first.replace(b"x.npy", b"z.npy")
    body = bytearray(data[:directory] + twice + data[end:])
    struct.pack_into("<I", body, body.rindex(b"PK\5\6") + 12, len(twice))
    with pytest.raises(ps.FormatError):
        opened(bytes(body))


def test_a_bomb_is_refused_before_it_is_inflated() -> None:
    """A member of 100 KB that inflates to 100 MB of zeros: more than its header's shape says."""
    plain = member() + bytes(100 << 20)
    bomb = zipped(members={"x.npy": plain}, method=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 200_000
    with pytest.raises(ps.LimitError, match="member_bytes"):
        opened(bomb, limits={"member_bytes": 1 << 20})
    lying = changed(bomb, b"PK\1\2", 24, struct.pack("<I", len(member())))
    with pytest.raises(ps.FormatError, match="more than its stated size"):
        table(lying)


def test_a_wrong_checksum_of_a_deflated_member_is_an_error() -> None:
    data = npz(True, x=np.arange(100))
    crc = zlib.crc32(member(array=np.arange(100)))
    broken = data.replace(struct.pack("<I", crc), struct.pack("<I", crc ^ 1))
    assert broken != data
    with pytest.raises(ps.ChecksumError, match=r"'x\.npy'"):
        table(broken)


def test_flipped_and_cut_archives_end_in_data_or_an_error() -> None:
    rng = random.Random(5)
    for data in (npz(x=np.arange(4), y=np.ones((4, 2))), npz(True, x=np.arange(40)), lists_file()):
        for cut in range(len(data)):
            with pytest.raises(ps.FormatError):
                opened(data[:cut])
        for _ in range(1500):
            broken = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                broken[rng.randrange(len(data))] = rng.randrange(256)
            try:
                table(bytes(broken)).validate(full=True)
            except ps.PenstockError as error:
                assert error.file == "a.npz"


def archive(packed: bytes, crc: int, size: int) -> bytes:
    """A zip archive of one deflated member x.npy with any contents."""
    name = b"x.npy"
    facts = struct.pack("<IIIHH", crc, len(packed), size, len(name), 0)
    local = struct.pack("<IHHHHH", 0x04034B50, 20, 0, 8, 0, 0) + facts + name + packed
    central = struct.pack("<IHHHHHH", 0x02014B50, 20, 20, 0, 8, 0, 0) + facts
    central += struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    return (
        local
        + central
        + struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central), len(local), 0)
    )


def test_a_deflated_member_is_what_the_archive_says_or_an_error() -> None:
    plain = member(array=np.arange(1000))
    packed = _deflated(plain)
    crc, size = zlib.crc32(plain), len(plain)
    good = archive(packed, crc, size)
    assert opened(good).take([999])["x"].to_pylist() == [999]
    gzip_head = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    hostile = {
        "another gzip member inside": (b"\x03\x00" + bytes(8) + gzip_head + packed, crc, size),
        "a trailer inside": (packed + struct.pack("<II", crc, size), crc, size),
        "other bytes behind": (packed + bytes(20), crc, size),
        "a wrong checksum": (packed, crc ^ 1, size),
        "a size too large": (packed, crc, size + 1),
        "a size too small": (packed, crc, size - 1),
        **{f"cut by {n}": (packed[:-n], crc, size) for n in (1, 2, 3, 5, 8, 9, 20, len(packed))},
    }
    for name, (bytes_, sum_, length) in hostile.items():
        with pytest.raises(ps.PenstockError):
            opened(archive(bytes_, sum_, length)).take([0])
            pytest.fail(name)
    with pytest.raises(ps.TruncatedError, match="too few bytes"):
        opened(archive(packed[:-20], crc, size)).take([0])
    with pytest.raises(ps.ChecksumError):
        opened(archive(packed, crc ^ 1, size)).take([0])


def _deflated(plain: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(plain) + engine.flush()


def test_a_value_of_zero_bytes_is_an_empty_text() -> None:
    text = b"{'descr': '|S0', 'fortran_order': False, 'shape': (), }".ljust(117) + b"\n"
    empty = b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = zipped(method=method, members={"x.npy": member(), "note.npy": empty})
        assert opened(data).schema.metadata[b"note"] == b""
