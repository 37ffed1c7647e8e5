"""The class names in a file's columns, in the order of its dictionaries or of first appearance. A pass over the file
finds them and stores them in the sidecar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np

from penstock.columns.facts import parsed
from penstock.contract.format import Options, Reader
from penstock.errors import FormatError, LimitError, StaleIndexError
from penstock.framing.index import fitting, sidecar
from penstock.framing.index.indexing import has_place
from penstock.framing.index.kept_schema import sections_of
from penstock.framing.index.sampled import sample_of
from penstock.framing.index.sidecar import Index
from penstock.framing.read.framed import FramedReader
from penstock.storage.base import Source, Storage
from penstock.storage.local import LocalStorage

MOST_NAMES = 65_536
_MOST_BYTES = 16 << 20
"""Maximum size of the JSON for a file."""
Names = tuple[str, ...]
Lists = Mapping[str, "Names | None"]
"""The names in each column, by its path; None if there are more than `MOST_NAMES`."""


def to_bytes(lists: Lists) -> bytes:
    """Serialize the lists for a sidecar; empty if that is too long."""
    data = json.dumps(lists, separators=(",", ":")).encode()
    return data if lists and len(data) <= _MOST_BYTES else b""


def from_bytes(data: bytes) -> Lists:
    """Parse the output of `to_bytes`; no lists if the data is invalid."""
    try:
        found = parsed(data, _MOST_BYTES) if data else {}
    except (FormatError, LimitError):
        return {}
    if not isinstance(found, dict):
        return {}
    lists: dict[str, Names | None] = {}
    for path, names in cast("dict[str, Any]", found).items():
        if names is None:
            lists[path] = None
        elif _is_list_of_names(names):
            lists[path] = tuple(names)
        else:
            return {}
    return lists


def _is_list_of_names(names: Any) -> bool:
    if not isinstance(names, list):
        return False
    listed = cast("list[Any]", names)
    is_short = len(listed) <= MOST_NAMES
    return is_short and all(isinstance(n, str) for n in listed) and len(set(listed)) == len(listed)


def of_file(
    path: str, storage: Storage, options: Options, opened: Callable[[Source], Any]
) -> Lists:
    """The lists in the sidecars that are valid for the current file."""
    found: dict[str, Names | None] = {}
    for data in sections_of(path, storage, options, opened, "classes"):
        found = {**from_bytes(data), **found}
    return found


def keep(
    source: Source, reader: Reader, where: str, lists: Lists, check: Callable[[], None]
) -> None:
    """Add lists of names to the sidecar of an open file; for the arguments see `keep_fact`."""

    def added(index: Index) -> Index:
        return replace(index, classes=to_bytes({**from_bytes(index.classes), **lists}))

    if to_bytes(lists):
        keep_fact(source, reader, where, added, check)


def keep_fact(
    source: Source,
    reader: Reader | None,
    where: str,
    added: Callable[[Index], Index],
    check: Callable[[], None],
) -> None:
    """Add a fact to an open file's sidecar, or to a new one (with the index of a framed file).

    Args:
        reader: the reader of the file; None for a file that is not framed.
        where: where sidecars are stored, as in `Options.index`.
        added: returns an index with the fact.
        check: raises an error if the file has changed since it was opened.
    """
    if not has_place(source, where):
        return
    own = _of_reader(reader, source)
    state = sidecar.state_of(source)  # before the check, because the file may change meanwhile
    check()
    if own.gap_ends is not None:
        return
    storage = LocalStorage()
    for folder in sidecar.folders(where):
        with suppress(OSError, StaleIndexError):
            index = sidecar.load(sidecar.path_for(source.path, folder), storage)
            if _is_of(index, own, source):
                sidecar.keep(added(index), source.path, storage, folder)
                return
    sidecar.keep_read(added(replace(own, state=state)), source.path, storage, where)


def _of_reader(reader: Reader | None, source: Source) -> Index:
    """The index of an open file, or one without record positions."""
    if isinstance(reader, FramedReader):
        return reader.index
    none = np.zeros(0, np.uint64), np.zeros(0, np.uint32)
    return Index(0, source.size, source.size, "", *none, layout="none", sample=sample_of(source))


def _is_of(index: Index, own: Index, source: Source) -> bool:
    """Whether a sidecar belongs to the same file as `own`."""
    if index.data_bytes != own.data_bytes:
        return False
    if own.layout == "none":
        return index.sample == own.sample if index.sample else fitting.is_same(index, source)
    same_places = np.array_equal(index.starts, own.starts)
    return same_places and np.array_equal(index.checksums, own.checksums)
