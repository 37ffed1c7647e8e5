"""The target for HDF5 files, with small files of every kind of layout.

Hostile bytes can make libhdf5 kill the process or loop for ever, and penstock cannot repair that. So each file is
read in a separate process. If the process dies or hangs inside libhdf5, the file counts as refused. If that happens
anywhere else, it is a failure, and so is any exception that is not one of penstock's errors.
"""

from __future__ import annotations

import faulthandler
import functools
import io
import os
import random
import re
import signal
import traceback
from typing import Any

import h5py
import numpy as np

import penstock as ps
from fuzz import seeds
from penstock.storage import MemoryStorage

SECONDS = 3
_REFUSED, _FAILED = 3, 4
_BY_LIBHDF5 = re.compile(
    r"\(most recent call first\):\n  File \"[^\"]*/(formats/hdf5(_file)?\.py|h5py/[^\"]*)\""
)
"""A stack trace contains this if the innermost Python code is the code that calls libhdf5."""


def read(data: bytes, rng: random.Random) -> None:
    """A whole file, in a separate process."""
    faulthandler.dump_traceback_later(60, exit=True)  # other targets allow less time
    trace, telling = os.pipe()
    child = os.fork()
    if not child:
        os.close(trace)
        os._exit(_in_child(data, rng, telling))
    os.close(telling)
    with open(trace, errors="replace") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == _REFUSED or (code and _BY_LIBHDF5.search(said)):
        raise ps.FormatError("no HDF5 file that can be read")
    assert code == 0, f"exit {code}\n{said}"


def _in_child(data: bytes, rng: random.Random, telling: int) -> int:
    faulthandler.enable(telling, all_threads=False)
    faulthandler.register(signal.SIGALRM, telling, all_threads=False, chain=True)
    signal.alarm(SECONDS)
    try:
        _read(data, rng)
    except ps.PenstockError as error:
        if not isinstance(error, ps.InternalError):
            return _REFUSED
        os.write(telling, traceback.format_exc().encode())
        return _FAILED
    except BaseException:
        os.write(telling, traceback.format_exc().encode())
        return _FAILED
    return 0


def _read(data: bytes, rng: random.Random) -> None:
    """Scan and take, from memory or from the disk."""
    if rng.random() < 0.5:
        storage: Any = MemoryStorage({"a.h5": data})
        dataset = ps.open("a.h5", storage=storage, index="never", format="hdf5", overlays=False)
    else:
        path = os.path.join(_folder(), "a.h5")
        with open(path, "wb") as file:
            file.write(data)
        dataset = ps.open(path, index="never", format="hdf5", overlays=False)
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


@functools.cache
def _folder() -> str:
    return seeds.folder()


def files() -> list[bytes]:
    """Files of the old layout and of the new layout, with filters, text, lists, structures, groups and attributes."""
    return [_file(None), _file("latest"), _written()]


def _file(version: str | None) -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w", libver=version) as file:
        file.create_dataset("x", data=np.arange(12), chunks=(5,), compression="gzip", shuffle=True)
        file.create_dataset("f", data=np.ones((12, 2), ">f4"), chunks=(4, 1), compression="lzf")
        file.create_dataset("y", data=np.arange(12.0), chunks=(12,), fletcher32=True)
        file.create_dataset("t", data=[f"n{n}" for n in range(12)])
        lists = file.create_dataset("v", (12,), h5py.vlen_dtype(np.int16))
        lists[:] = np.array([np.arange(n) for n in range(12)], object)
        file["g/s"] = np.zeros(12, [("a", "u1"), ("b", "S3")])
        file["x"].attrs["unit"] = "m"
        file.attrs["many"] = [1, 2]
    return out.getvalue()


def _written() -> bytes:
    path = os.path.join(_folder(), "written.h5")
    table = {
        "id": range(9),
        "name": [f"n{n}" for n in range(9)],
        "some": [[n] * 2 for n in range(9)],
    }
    ps.write(table, path, overwrite=True, index=False)
    with open(path, "rb") as file:
        return file.read()
