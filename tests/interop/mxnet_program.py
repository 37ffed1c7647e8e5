"""Reads and writes packs by MXNet itself. Runs in a separate environment that has MXNet 1.9.1.

Takes JSON on standard input, a list of [what, file, file of results]; bytes are hexadecimal:

    read      every record, by MXRecordIO
    keyed     every record by its key in the .idx beside, last key first, by MXIndexedRecordIO
    unpacked  every record as header and image, by recordio.unpack
    pictures  labels and RGB pixels of all records, by ImageRecordIter, as npz
    write     the records of a JSON file, by MXRecordIO
    pack      the labels, ids and images of a JSON file, by pack and MXIndexedRecordIO
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

np.bool = bool  # type: ignore[misc]  # MXNet asks for it while it is imported

import mxnet  # noqa: E402
from mxnet import recordio  # noqa: E402


def records(path: str) -> Iterator[bytes]:
    reader = recordio.MXRecordIO(path, "r")
    while (record := reader.read()) is not None:
        yield bytes(record)


def read(path: str, out: str) -> None:
    Path(out).write_text(json.dumps([record.hex() for record in records(path)]))


def keyed(path: str, out: str) -> None:
    reader = recordio.MXIndexedRecordIO(str(Path(path).with_suffix(".idx")), path, "r")
    found = [[key, bytes(reader.read_idx(key)).hex()] for key in reversed(reader.keys)]
    Path(out).write_text(json.dumps(found))


def unpacked(path: str, out: str) -> None:
    rows: list[list[Any]] = []
    for record in records(path):
        header, image = recordio.unpack(record)
        label = header.label
        label = label.tolist() if isinstance(label, np.ndarray) else label
        rows.append([header.flag, label, header.id, header.id2, image.hex()])
    Path(out).write_text(json.dumps(rows))


def pictures(path: str, out: str) -> None:
    batches = mxnet.io.ImageRecordIter(
        path_imgrec=path,
        path_imgidx=str(Path(path).with_suffix(".idx")),
        data_shape=(3, 24, 32),
        batch_size=4,
        preprocess_threads=1,
        verbose=False,
    )
    parts = [(batch.data[0].asnumpy(), batch.label[0].asnumpy()) for batch in batches]
    pixels, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    np.savez(out, pixels=pixels, labels=labels)


def write(path: str, out: str) -> None:
    writer = recordio.MXRecordIO(path, "w")
    for record in json.loads(Path(out).read_text()):
        writer.write(bytes.fromhex(record))
    writer.close()


def pack(path: str, out: str) -> None:
    writer = recordio.MXIndexedRecordIO(str(Path(path).with_suffix(".idx")), path, "w")
    for key, (label, id_, id2, image) in enumerate(json.loads(Path(out).read_text())):
        header = recordio.IRHeader(0, label, id_, id2)
        writer.write_idx(key, recordio.pack(header, bytes.fromhex(image)))
    writer.close()


for what, path, out in json.load(sys.stdin):
    globals()[what](path, out)
