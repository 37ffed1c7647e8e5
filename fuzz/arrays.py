"""Targets for files of arrays: the text of an npy header, and the directory of an npz archive.

Their results are compared with NumPy's for dtypes, and with zipfile's for the positions of members.
"""

from __future__ import annotations

import ast
import io
import random
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

import penstock as ps
from fuzz import seeds
from penstock.formats.npz.zip_directory import read_directory
from penstock.formats.numpy.npy_header import parse_header
from penstock.limits import Limits
from penstock.storage import MemoryStorage

REFUSED = (zipfile.BadZipFile, NotImplementedError)
"""Errors of zipfile while it reads a member, such as a wrong CRC."""


def npy_header(data: bytes, rng: random.Random) -> None:
    """The header alone; then the whole file, if a small array follows."""
    header = parse_header(lambda start, length: data[start : start + length])
    prefix = 10 if data[6] == 1 else 12
    text = data[prefix : header.start].decode("utf-8" if data[6] == 3 else "latin-1")
    told = _literal(text)
    if told is not None:
        assert told["shape"] == header.shape, text
        assert told["fortran_order"] == header.fortran_order, text
        if isinstance(told["descr"], str) and header.dtype.kind not in "VfcO":
            assert np.dtype(told["descr"]) == header.dtype, text
    _scan(data, "npy", rng)


def _literal(text: str) -> dict[str, object] | None:
    """Python's value of a header, or None if it is not a literal, as in headers written by Python 2."""
    try:
        return ast.literal_eval(text.strip("\0 \n\t\r"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def npz(data: bytes, rng: random.Random) -> None:
    """The directory, whose stored members must be where zipfile reads them; then the table."""
    storage = MemoryStorage({"f": data})
    directory = read_directory(storage.source("f"), Limits())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member, info in zip(directory.members, archive.infolist(), strict=True):
            end = member.start + member.packed_bytes
            assert end <= len(data)
            if member.method == zipfile.ZIP_STORED:
                with suppress(*REFUSED), archive.open(info) as file:
                    assert file.read() == data[member.start : end]
    _scan(data, "npz", rng)


def _scan(data: bytes, name: str, rng: random.Random) -> None:
    storage = MemoryStorage({f"f.{name}": data})
    dataset = ps.open(f"f.{name}", storage=storage, index="never", format=name, overlays=False)
    found = 0
    for batch in dataset.scan(threads=1):
        batch.validate(full=True)
        found += batch.num_rows
        if found > 1 << 16:  # there can be huge numbers of records without bytes
            return
    assert found == len(dataset)
    if found:
        numbers = [rng.randrange(found) for _ in range(3)]
        assert dataset.take(numbers).num_rows == len(numbers)


def npy_files() -> list[bytes]:
    """One file for each kind of dtype, order and version."""
    golden = [path.read_bytes() for path in sorted(seeds.GOLDEN.glob("neighbours/*.npy"))]
    arrays = [
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.array(["aé", ""]),
        np.array([b"x", b"yz"]),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.zeros(2, [("a", "?"), ("b", [("c", "<f2", (2,))])]),
    ]
    made: list[bytes] = []
    for array in arrays:
        for version in ((1, 0), (3, 0)):
            out = io.BytesIO()
            np.lib.format.write_array(out, array, version)
            made.append(out.getvalue())
    return golden + made


def npz_files() -> list[bytes]:
    """Archives with stored members, deflated members, and columns of several arrays."""
    golden = [path.read_bytes() for path in sorted(seeds.GOLDEN.glob("neighbours/*.npz"))]
    out = io.BytesIO()
    offsets = np.array([0, 2, 3])
    columns = {"t#offsets": offsets, "t#utf8": np.frombuffer(b"abc", np.uint8), "x": np.ones(2)}
    np.savez(out, **columns)
    return [*golden, out.getvalue(), _written()]


def _written() -> bytes:
    """An archive written by penstock, with zip64 fields, padding, and a schema in its comment."""
    table = pa.table(
        {"x": pa.array([1, None]), "w": pa.array([["a"], []], pa.list_(pa.large_string()))}
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "w.npz")
        ps.write(table, str(path))
        return path.read_bytes()
