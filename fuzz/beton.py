"""The target for .beton files, with a plain parser that reads one value at a time, for comparison.

A page has at least 2 MiB, so a mutated file is stored in a short form: the length of the bytes before the first page,
these bytes, and the bytes from the first page on.
"""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.columns.lending import as_lent
from penstock.columns.types import ImageType, fixed_tensors, is_image
from penstock.datasets.take import take
from penstock.loader.images import decode_into
from penstock.payloads.images import reencode
from penstock.storage import MemoryStorage

PAGE = 1 << 21


def unfolded(data: bytes) -> bytes:
    """The file that a short form stands for."""
    size = int.from_bytes(data[:2], "little")
    head = data[2 : 2 + size]
    return head.ljust(PAGE, b"\0") + data[2 + size :] if data[2 + size :] else head


def folded(data: bytes) -> bytes:
    """The short form of a file whose first page is the second 2 MiB, without the zeros at the end of the last
    page."""
    if len(data) <= PAGE:
        return struct.pack("<H", len(data)) + data
    _, _, _, _, table = struct.unpack_from("<HHIQQ", data)
    head = data[:PAGE].rstrip(b"\0") + bytes(40)
    values = data[PAGE:table].rstrip(b"\0") + bytes(8)
    moved = struct.pack("<Q", PAGE + len(values))
    return struct.pack("<H", len(head)) + head[:16] + moved + head[24:] + values + data[table:]


def read(data: bytes, rng: random.Random) -> None:
    """Open, scan and take; the records must be those that the plain parser finds."""
    whole = unfolded(data)
    dataset = ps.open("m.beton", storage=MemoryStorage({"m.beton": whole}), format="beton")
    if len(dataset) > 1 << 16:
        return
    table = pa.Table.from_batches(list(dataset.scan(threads=1)), schema=dataset.schema)
    table.validate(full=True)
    assert table.num_rows == len(dataset)
    found = [column.to_pylist() for column in table.columns]
    for column, wanted in zip(found, plain(whole), strict=True):
        assert repr(column) == repr(wanted)
    if len(dataset):
        numbers = [rng.randrange(len(dataset)) for _ in range(3)]
        taken = dataset.take(numbers)
        assert repr(taken.to_pylist()) == repr(table.take(numbers).to_pylist())
        _look_at_lent(taken, take(dataset, numbers, None, lend=True))


def _look_at_lent(taken: pa.RecordBatch, lent: pa.RecordBatch) -> None:
    """Borrowed values must equal decoded values, and their images must be those of the files."""
    assert repr(as_lent(lent).to_pylist()) == repr(as_lent(taken).to_pylist())  # NaN is itself
    keys = np.arange(len(taken), dtype=np.uint64)
    for files, parts in zip(taken.columns, lent.columns, strict=True):
        if not is_image(files.type):
            continue
        for spec in (ps.Image(4, crop="random", flip=True), ps.Image((3, 5), dtype="float32")):
            made, faults = decode_into(files, spec, keys, damage="skip")
            other, others = decode_into(parts, spec, keys, damage="skip")
            assert made.tobytes() == other.tobytes()
            assert [fault.place for fault in faults] == [fault.place for fault in others]


def plain(data: bytes) -> list[list[Any]]:
    """The columns of a valid file, read one value after another."""
    _, num_fields, _, num_records, table = struct.unpack_from("<HHIQQ", data)
    kinds = [data[24 + n * 1041] for n in range(num_fields)]
    places, at = [], 0
    for kind in kinds:
        align = 1 if kind in (2, 3, 5) else 8
        at = -(-at // align) * align
        places.append(at)
        at += {2: 13, 3: 16, 5: 16}.get(kind, 8)
    widest = 1 if set(kinds) <= {2, 3, 5} else 8
    size = -(-at // widest) * widest
    columns: list[list[Any]] = [[] for _ in kinds]
    for record in range(num_records):
        row = 24 + num_fields * 1041 + record * size
        for number, kind in enumerate(kinds):
            arguments = data[24 + number * 1041 + 17 :][:1024]
            value = _plain_value(data, kind, row + places[number], arguments, record, table)
            columns[number].append(value)
    return columns


def _plain_value(data: bytes, kind: int, at: int, arguments: bytes, record: int, table: int) -> Any:
    if kind in (0, 1):
        return struct.unpack_from("<d" if kind == 0 else "<q", data, at)[0]
    if kind == 2:
        mode, width, height, ptr = struct.unpack_from("<BHHQ", data, at)
        if mode == 1:
            return b"P6\n%d %d\n255\n" % (width, height) + data[ptr:][: width * height * 3]
        entries = list(struct.iter_unpack("<QQQ", data[table:]))
        (size,) = {s for owner, place, s in entries if (owner, place) == (record, ptr) and s}
        return data[ptr : ptr + size]
    ptr, size = struct.unpack_from("<QQ", data, at) if kind in (3, 5) else (_u64(data, at), 0)
    if kind == 3:
        return data[ptr : ptr + size]
    if kind == 5:
        return data[ptr : ptr + size].split(b"\0")[0].decode()
    sizes = struct.unpack_from("<32Q", arguments)
    shape = sizes[: max(n for n, size in enumerate(sizes) if size) + 1]
    text = arguments[264 : 264 + _u64(arguments, 256)]
    dtype = np.dtype(json.loads(text)[0][1])
    values = np.frombuffer(data, dtype, int(np.prod(shape)), ptr if np.prod(shape) else 0)
    if dtype.kind == "b":
        values = np.frombuffer(data, np.uint8, len(values), ptr if len(values) else 0) != 0
    return pa.array(values.astype(dtype.newbyteorder("="))).to_pylist()


def _u64(data: bytes, at: int) -> int:
    return struct.unpack_from("<Q", data, at)[0]


def seeds() -> list[bytes]:
    """Files with every kind of field, in their short form."""
    count = 6
    rng = np.random.default_rng(1)
    pictures = pa.array([b"P6\n2 %d\n255\n" % n + bytes(6 * n) for n in range(1, count + 1)])
    image = pa.ExtensionArray.from_storage(ImageType(), pictures)
    jpegs = reencode(image, "jpeg")
    numbers = {"i": np.arange(count), "f": np.arange(count) / 3}
    stored = {
        "b": [b"x" * (n % 3) for n in range(count)],
        "v": fixed_tensors(rng.standard_normal((count, 2, 2)).astype(np.float16)),
        "j": pa.array([f'{{"n": {n}}}' for n in range(count)], pa.json_()),
        "o": fixed_tensors(rng.integers(0, 2, (count, 3)).astype(bool)),
    }
    return [
        folded(written(numbers)),
        folded(written({"b": stored["b"]})),
        folded(written({**numbers, **stored, "m": image}, image_mode="raw")),
        folded(written({"m": jpegs, "i": numbers["i"], "j": stored["j"]})),
        folded(written({"m": image}, image_mode="proportion")),
    ]


def written(columns: dict[str, Any], **options: Any) -> bytes:
    """A file in memory."""
    storage = MemoryStorage()
    ps.write(pa.table(columns), "m.beton", storage=storage, index=False, page_bytes=PAGE, **options)
    return storage.files["m.beton"]
