"""Measures formats, image codecs and orders on the user's own data and machine.

| function | compares |
|---|---|
| `ps.bench.formats` | containers: bytes, writing, scanning, random access, memory |
| `ps.bench.images` | JPEG, PNG, WebP and raw pixels: bytes, images a second, loss |
| `ps.bench.shuffle` | orders: how well they mix, bytes read, seeks, seconds an epoch |

Each returns a report: a dataclass with `rows`, conclusions (`sentences`), how it was measured, and how noisy the
machine was. `to_dict()` is for JSON, and `ps.bench.html(report)` makes a page.
"""

from __future__ import annotations

from penstock.bench.formats import FormatRow, FormatsReport, formats
from penstock.bench.images import ImageRow, ImagesReport, images
from penstock.bench.measure import Machine, Measured, Noise
from penstock.bench.page import html
from penstock.bench.sample import Sample
from penstock.bench.shuffle import Disk, OrderRow, ShuffleReport, shuffle
from penstock.bench.tables import Table, contents

__all__ = [
    "Disk",
    "FormatRow",
    "FormatsReport",
    "ImageRow",
    "ImagesReport",
    "Machine",
    "Measured",
    "Noise",
    "OrderRow",
    "Sample",
    "ShuffleReport",
    "Table",
    "contents",
    "formats",
    "html",
    "images",
    "shuffle",
]
