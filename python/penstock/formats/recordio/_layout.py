"""The columns of RecordIO files."""

from __future__ import annotations

PACK = ("label", "id", "id2", "image")
"""The columns of a pack of images, in the order in which the kernel takes them."""
DATA = "data"
"""The column of whole payloads."""
RECORD = "record"
"""The same column with raw=True."""
