"""The columns of RecordIO files."""

from __future__ import annotations

PACK = ("label", "id", "id2", "image")
"""The columns of a pack of images, in the kernel's order."""
DATA = "data"
"""The column of whole payloads."""
RECORD = "record"
"""The same column with raw=True."""
