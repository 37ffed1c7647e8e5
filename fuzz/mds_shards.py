"""A plain writer of MDS shards for tests and fuzzing. It follows the published layout and does not use MosaicML's
library."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any


def shard(
    columns: dict[str, tuple[str, int | None]], records: list[dict[str, bytes]], **config: Any
) -> bytes:
    """The bytes of a shard. `columns` is {name: (encoding, size or None)}; the values are already encoded."""
    said = {
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_names": list(columns),
        "column_sizes": [size for _, size in columns.values()],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": 67108864,
        "version": 2,
        **config,
    }
    text = json.dumps(said, sort_keys=True).encode()
    bodies: list[bytes] = []
    for record in records:
        varying = [name for name, (_, size) in columns.items() if size is None]
        sizes = b"".join(struct.pack("<I", len(record[name])) for name in varying)
        bodies.append(sizes + b"".join(record[name] for name in columns))
    offsets = [4 * (len(records) + 2) + len(text)]
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    head = struct.pack(f"<{len(offsets) + 1}I", len(records), *offsets)
    return head + text + b"".join(bodies)


def one_column(encoding: str, values: list[bytes], size: int | None = None) -> bytes:
    """A shard of one column `x`."""
    return shard({"x": (encoding, size)}, [{"x": value} for value in values])


def simple(values: list[int]) -> bytes:
    """A shard with a column of text and one of integers."""
    columns = {"text": ("str", None), "x": ("int", 8)}
    return shard(
        columns, [{"text": b"t%d" % value, "x": struct.pack("<q", value)} for value in values]
    )


def listed(name: str, data: bytes, num_records: int, packed: Any = None, **hashes: str) -> Any:
    """An entry of index.json."""
    return {
        "format": "mds",
        "samples": num_records,
        "version": 2,
        "raw_data": {"basename": name, "bytes": len(data), "hashes": hashes},
        "zip_data": packed,
    }


def index_of(*entries: Any, version: int = 2) -> bytes:
    return json.dumps({"shards": list(entries), "version": version}).encode()


def folder_of(folder: Path, shards: dict[str, list[int]], algorithm: str = "sha1") -> Path:
    """A folder of simple shards, with an index.json that lists them as given."""
    folder.mkdir(exist_ok=True)
    entries: list[Any] = []
    for name, values in shards.items():
        data = simple(values)
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        digest = {algorithm: hashlib.new(algorithm, data).hexdigest()}
        entries.append(listed(name, data, len(values), **digest))
    (folder / "index.json").write_bytes(index_of(*entries))
    return folder
