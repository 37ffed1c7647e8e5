"""The columns that RecordIO files are read and written with."""

from __future__ import annotations

PACK = ("label", "id", "id2", "image")
"""The columns of a pack of images, in the order in which the kernel gives them."""


DATA = "data"


RECORD = "record"
