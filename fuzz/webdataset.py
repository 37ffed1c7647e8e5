"""The target for tar archives: the contents that penstock reads are compared with those that Python's tarfile
reads."""

from __future__ import annotations

import gzip
import io
import random
import tarfile

import penstock as ps
from fuzz.seeds import GOLDEN
from penstock.storage import MemoryStorage

_LIMITS = {"record_bytes": 1 << 20, "member_bytes": 1 << 20}


def read(data: bytes, rng: random.Random) -> None:
    """Every record, by one of the ways to read; records read at random must be those of the scan."""
    options = rng.choice(({}, {"decode": False}, {"damage": "skip"}, {"raw": True}))
    storage = MemoryStorage({"a.tar": data})
    dataset = ps.open(
        "a.tar",
        storage=storage,  # type: ignore[arg-type]
        index="never",
        format="webdataset",
        limits=_LIMITS,
        **options,  # type: ignore[arg-type]
    )
    rows = [row for batch in dataset.scan(threads=1) for row in batch.to_pylist()]
    # Records that cannot be decoded are counted, but skipped when they are read.
    passed_over = sum(region.num_records or 0 for region in dataset.damage)
    assert len(rows) <= len(dataset) <= len(rows) + passed_over
    if rows and len(rows) == len(dataset):  # the numbers include skipped records
        number = rng.randrange(len(rows))
        assert repr(dataset.take([number]).to_pylist()) == repr([rows[number]])
    if options == {"decode": False} and data[:2] != b"\x1f\x8b":
        _compare(data, rows)


def _compare(data: bytes, rows: list[dict[str, object]]) -> None:
    """All contents that tarfile sees before the first end mark must be among those of the records."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            members = [m for m in tar.getmembers() if m.isreg() and not m.sparse]
            names = [m.name for m in members]
    except (tarfile.TarError, ValueError, OverflowError, RecursionError):
        return
    found = {f"{row['__key__']}.{field}".lower() for row in rows for field in row}
    for name in names:
        base = name.rpartition("/")[2]
        if "." in base[1:] and not base.startswith(".") and not name.startswith("__"):
            assert name.lower() in found, name


def seeds() -> list[bytes]:
    """Golden archives if they are small, and an archive made here for each kind of header."""
    found = [path.read_bytes() for path in sorted((GOLDEN / "webdataset").glob("*.tar*"))]
    found = [data.rstrip(b"\0") + bytes(1024) for data in found if len(data) <= 20480]
    for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=kind, pax_headers={"comment": "x"}) as tar:
            for name, contents in (("a.cls", b"7"), ("a.txt", b"text"), ("b" * 90 + "/c.npy", b"")):
                info = tarfile.TarInfo(name)
                info.size = len(contents)
                tar.addfile(info, io.BytesIO(contents))
        found.append(out.getvalue()[:6144])
    return [*found, gzip.compress(found[-1], mtime=0)]
