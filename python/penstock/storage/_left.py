"""What killed processes leave in a folder: temporary files, uploads that nobody ends, and journals of unfinished jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.storage.hidden import TEMPORARY_SUFFIX

LOCK = f".lock{TEMPORARY_SUFFIX}"
_JOURNAL = re.compile(r"\.penstock-(?:convert|fields|repair)-[0-9a-f]{16}(?:\.json)?")
_PART = re.compile(r"\.penstock-part-[0-9a-f]{16}-\d+")


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that a killed process left."""

    path: str
    kind: str
    """"temporary file", "upload", "journal", "part" or "lock". A journal and its parts let the same call go on."""
    num_bytes: int
    """Its bytes; 0 if unknown, as for an upload."""
    written: float
    """When it was last written, in seconds since 1970."""
    is_used: bool = False
    """Whether the process seems to be alive."""
    upload: str = ""
    """The store's name for the upload, if nothing else than the store knows it."""


def kind_of(name: str) -> str | None:
    """What kind of leftover has this name; None if it is none, such as an index."""
    if name.endswith(LOCK):
        return "lock"
    if name.endswith(TEMPORARY_SUFFIX):
        return "temporary file"
    if _JOURNAL.fullmatch(name):
        return "journal"
    return "part" if _PART.fullmatch(name) else None
