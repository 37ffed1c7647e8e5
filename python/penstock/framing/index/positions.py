"""Keeps the positions of the records of files whose format neither stores them nor is framed.

Such a format sets `FormatInfo.keeps_positions`, and its reader is a `PositionedReader`. So it reads through a file only
once. The section of the sidecar is

```
bytes        what
1            length of the name
...          name of the format, UTF-8
8 * (n + 1)  the start of each record in the file, then the end of the last record, uint64
```

The positions are used only while the file's size and times show that it was not written to since they were stored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from penstock.contract.format import Options
from penstock.errors import PenstockError, StaleIndexError
from penstock.framing.index import kept_classes, sidecar
from penstock.framing.index._index_cache import cache_folder, made_once, tell_if_slow
from penstock.framing.index._sections import State
from penstock.framing.index.indexing import has_place
from penstock.framing.index.kept_schema import is_untouched, places_of
from penstock.framing.index.sidecar import Index
from penstock.storage.base import Source
from penstock.storage.local import LocalSource, LocalStorage


def to_bytes(name: str, positions: np.ndarray | None) -> bytes:
    """Serialize the positions in a file of the format `name`; empty for None."""
    if positions is None:
        return b""
    word = name.encode()
    return bytes([len(word)]) + word + np.ascontiguousarray(positions, "<u8").tobytes()


def from_bytes(data: bytes, name: str, size: int) -> np.ndarray | None:
    """Parse the output of `to_bytes` for a file of `size` bytes; None if it is invalid, or of another format."""
    head = to_bytes(name, np.zeros(0))
    if not data.startswith(head) or len(data) < len(head) + 8 or (len(data) - len(head)) % 8:
        return None
    found = np.frombuffer(data, "<u8", offset=len(head)).astype(np.int64)
    in_order = found[0] >= 0 and found[-1] <= size and bool((np.diff(found) >= 0).all())
    return found if in_order else None


Found = tuple[np.ndarray, "PenstockError | None"]
"""The positions in a file, int64[num_records + 1], and the error that ends them."""


def kept_positions(name: str, source: Source, options: Options, find: Callable[[], Found]) -> Found:
    """Return the positions of the records of a file: from its sidecar, or else from `find`. If `find` reports no error,
    store them in the sidecar.

    Args:
        name: the name of the format.
        source: the file.
        options: the reader's options, which say where sidecars are stored.
        find: reads through the file, and returns the start of each record, the end of the last one, and the error if
            the bytes after it are damaged.
    """
    where = options.index
    if where == "never" or not (isinstance(source, LocalSource) and has_place(source, where)):
        return find()
    known = _kept(name, source, where)
    if known is not None:
        return known, None
    if not options.stores_index:
        return find()
    with made_once(os.path.basename(sidecar.path_for(source.path, cache_folder()))):
        known = _kept(name, source, where)  # another process may have found them meanwhile
        if known is not None:
            return known, None
        begun = time.monotonic()
        state = sidecar.state_of(source)  # before reading, because the file may change meanwhile
        found, fault = find()
        if fault is None:
            _keep(to_bytes(name, found), source, where, state)
            tell_if_slow(time.monotonic() - begun, source.path)
    return found, fault


def _kept(name: str, source: Source, where: str) -> np.ndarray | None:
    for path in places_of(source.path, where):
        with suppress(OSError, StaleIndexError):
            facts, kept = sidecar.load_sections(path, source.storage or LocalStorage(), "positions")
            found = from_bytes(kept["positions"], name, source.size)
            if found is not None and is_untouched(source.path, path, facts, source.identity):
                return found
    return None


def _keep(positions: bytes, source: Source, where: str, state: State) -> None:
    """Store positions that were found in this state of the file. Without an explicit folder, an OSError is ignored."""

    def added(index: Index) -> Index:
        # Checksums of the file belong to the state in which they were computed.
        now = state if index.blocks is None else index.state
        return replace(index, positions=positions, state=now)

    def check() -> None:
        source.check_unchanged(may_grow=False)

    try:
        kept_classes.keep_fact(source, None, where, added, check)
    except OSError:
        if where not in ("auto", "beside"):
            raise
