"""What killed processes left in a folder of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from penstock.storage import journal
from penstock.storage._left import LOCK, Leftover, kind_of
from penstock.storage.folder import size_of

_TOKEN = re.compile(r"\.penstock-(?:convert|part|repair)-([0-9a-f]{16})")
_FIELDS, _FIELDS_LOCK = ".penstock-fields-", ".penstock-fields.lock"


def of_this_machine(folder: str) -> Iterator[Leftover]:
    """The leftovers in a folder of this machine."""
    names = sorted(os.listdir(folder))
    used = {
        found[1]
        for name in names
        if name.endswith(LOCK) and (found := _TOKEN.match(name)) and _is_locked(folder, name)
    }
    changes_fields = _FIELDS_LOCK in names and _is_locked(folder, _FIELDS_LOCK)
    for name in names:
        kind, found = kind_of(name), _TOKEN.search(name)
        if kind is None:
            continue
        path = os.path.join(folder, name)
        is_used = found is not None and found[1] in used
        with suppress(FileNotFoundError):  # its process has just removed it
            written = os.stat(path).st_mtime
            is_used = is_used or (changes_fields and _FIELDS in name)
            yield Leftover(path, kind, size_of(path), written, is_used)


def _is_locked(folder: str, name: str) -> bool:
    with suppress(OSError), open(os.path.join(folder, name), "rb") as file:
        return not journal.lock(file.fileno())
    return False
