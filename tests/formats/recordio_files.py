"""RecordIO files in memory, packed by MXNet's rules, and their records."""

from __future__ import annotations

from typing import Any

import penstock as ps
from fuzz import mxnet_rules as rules
from penstock.storage import MemoryStorage

JPEG = b"\xff\xd8\xff\xe0"


def opened(data: bytes, **options: Any) -> ps.Dataset:
    """Opens a file that is only in memory."""
    name = options.pop("name", "m.rec")
    return ps.open(name, storage=MemoryStorage({name: data}), index="never", **options)


def rows(dataset: ps.Dataset) -> list[dict[str, Any]]:
    return [row for batch in dataset.scan() for row in batch.to_pylist()]


def pack_file(labels: list[Any], images: list[bytes] | None = None) -> bytes:
    images = [JPEG + b"%d" % n for n in range(len(labels))] if images is None else images
    pairs = zip(labels, images, strict=True)
    return rules.file_of(rules.pack(label, image, n) for n, (label, image) in enumerate(pairs))
