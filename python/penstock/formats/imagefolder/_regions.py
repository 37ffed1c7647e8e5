"""The regions of a folder of images: its files, one after another, with the kind and size of each image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock import describe
from penstock.contract.format import check_record
from penstock.contract.regions import DAMAGE, MOST, Region, several
from penstock.storage.folder import Folder
from penstock.storage.image_names import is_image_name

_HEAD_BYTES = 1 << 16
_NETPBM = {b"P5": "PGM", b"P6": "PPM"}


def files(folder: Folder, record: int, numbers: np.ndarray) -> Iterator[Region]:
    """The files in the order of their names. Offsets are counted as if all files were joined to one."""
    count = len(folder.entries)
    wanted = int(numbers[record]) if record < len(numbers) else 0
    first = max(wanted - MOST // 2, 0)
    last = min(first + MOST, count)
    starts = [0, *folder.ends.tolist()]
    records = {number: n for n, number in enumerate(numbers.tolist())}
    yield from several(0, starts[first], 0, first, "file")
    for number in range(first, last):
        yield _file(folder, number, starts[number], records.get(number))
    yield from several(starts[last], folder.size - starts[last], last, count - last, "file")
    check_record(record, len(numbers))


def _file(folder: Folder, number: int, start: int, record: int | None) -> Region:
    entry = folder.entries[number]
    note = "" if record is None else f"record {record}"
    if record is None or not is_image_name(entry.name):
        return Region(start, entry.size, entry.name, note="no record")
    head = folder.read_head(number, _HEAD_BYTES).to_bytes()
    image = describe.image_header(head)
    if image is not None:
        value = f"{image.kind}, {image.width} × {image.height}"
        return Region(start, entry.size, entry.name, value, note)
    if head[:2] in _NETPBM:
        size = " × ".join(word.decode("latin-1") for word in head[2:64].split()[:2])
        return Region(start, entry.size, entry.name, f"{_NETPBM[head[:2]]}, {size}", note)
    what = f"{note}: despite its name, this file is not an image"
    return Region(start, entry.size, entry.name, None, what, state=DAMAGE)
