"""The lengths of the lists in a file's columns. A pass over the file finds them and stores them in the sidecar.

bytes            what
4                length of the JSON, little-endian
...              JSON: the names of the columns
4 * n * columns  column by column, the length of each record's list, uint32
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np

from penstock.columns.facts import parsed
from penstock.contract.format import Options, Reader
from penstock.errors import FormatError, LimitError
from penstock.framing.index import kept_classes
from penstock.framing.index.kept_schema import sections_of
from penstock.framing.index.sidecar import Index
from penstock.storage.base import Source, Storage

_MOST_NAME_BYTES = 1 << 16
Lengths = Mapping[str, np.ndarray]
"""The lengths in each column, uint32[num_records]."""


def to_bytes(lengths: Lengths) -> bytes:
    """Serialize lengths for a sidecar; empty if there are none."""
    if not lengths:
        return b""
    names = json.dumps(list(lengths), separators=(",", ":")).encode()
    arrays = [np.ascontiguousarray(array, "<u4").tobytes() for array in lengths.values()]
    return len(names).to_bytes(4, "little") + names + b"".join(arrays)


def from_bytes(data: bytes) -> dict[str, np.ndarray]:
    """Parse the output of `to_bytes`; no lengths if the data is invalid."""
    end = 4 + int.from_bytes(data[:4], "little")
    if not 4 < end <= min(len(data), _MOST_NAME_BYTES):
        return {}
    try:
        found = parsed(data[4:end], _MOST_NAME_BYTES)
    except (FormatError, LimitError):
        return {}
    names = cast("list[Any]", found) if isinstance(found, list) else []
    if not names or not all(isinstance(name, str) for name in names):
        return {}
    if (len(data) - end) % (4 * len(names)):
        return {}
    arrays = np.frombuffer(data, "<u4", offset=end).reshape(len(names), -1)
    return dict(zip(names, arrays, strict=True))


def of_file(
    path: str, storage: Storage, options: Options, opened: Callable[[Source], Any]
) -> dict[str, np.ndarray]:
    """The lengths from all sidecars of a file that are valid for its current content. If two sidecars have the same
    column, the first one counts."""
    found: dict[str, np.ndarray] = {}
    for data in sections_of(path, storage, options, opened, "lengths"):
        found = {**from_bytes(data), **found}
    return found


def keep(
    source: Source, reader: Reader, where: str, lengths: Lengths, check: Callable[[], None]
) -> None:
    """Add lengths to the sidecar of an open file; for the arguments see `kept_classes.keep`."""

    def added(index: Index) -> Index:
        return replace(index, lengths=to_bytes({**from_bytes(index.lengths), **lengths}))

    kept_classes.keep_fact(source, reader, where, added, check)
