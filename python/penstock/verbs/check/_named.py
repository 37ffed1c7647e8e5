"""The files that `verify` checks, and those that are missing."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.contract.report import Finding
from penstock.errors import shown
from penstock.manifests.names import expand
from penstock.storage.base import Storage
from penstock.storage.numbered_sets import MissingShard
from penstock.storage.paths import Expanded


class Named(NamedTuple):
    """What a source names."""

    paths: list[str]
    num_bytes: int
    missing: list[Finding]
    """A finding for each of several files, or shards of a numbered set, that is missing."""
    empty: list[str]
    """The files of 0 bytes."""


def named_by(source: Any, storage: Storage, *, follow_links: bool) -> Named:
    """Find the files that `source` names.

    Raises:
        FileNotFoundError: all are missing.
    """
    found, missing = _expanded(source, storage, follow_links)
    error: FileNotFoundError | None = None
    paths: list[str] = []
    empty: list[str] = []
    num_bytes = 0
    for path in found:
        try:
            size = storage.num_bytes(path)
            paths.append(path)
        except FileNotFoundError as gone:
            error = gone
            missing.append(_finding(path, gone))
            continue
        num_bytes += size
        empty += [] if size else [path]
    if error is not None and not paths:
        raise error
    return Named(paths, num_bytes, missing, empty)


def notes_of_empty(
    empty: Sequence[str], num_records: int, findings: Sequence[Finding]
) -> list[Finding]:
    """Notes on files of 0 bytes among files with records. In some formats these are valid, and have no records."""
    told = {finding.file for finding in findings}
    message = "the file has no bytes and so no records, but other files have some"
    return [
        Finding("empty_file", shown(path), None, 0, 0, message, 0, "note")
        for path in empty
        if num_records and shown(path) not in told and path not in told
    ]


def _expanded(
    source: Any, storage: Storage, follow_links: bool
) -> tuple[Sequence[str], list[Finding]]:
    """Return the files of a source, and findings for the names in a list that name no file."""
    expanded = partial(expand, storage=storage, follow_links=follow_links, missing_shards="ignore")
    try:
        return _with_missing(expanded(source), [])
    except FileNotFoundError:
        if not isinstance(source, (list, tuple)):
            raise
        names: Sequence[Any] = source
        there, missing = list[Any](), list[Finding]()
        for name in names:
            try:
                expanded([name])
                there.append(name)
            except FileNotFoundError as error:
                missing.append(_finding(name, error))
        if not there:
            raise
    return _with_missing(expanded(there), missing)


def _with_missing(found: Expanded, missing: list[Finding]) -> tuple[Sequence[str], list[Finding]]:
    return found.paths, [*missing, *map(missing_shard, found.missing)]


def missing_shard(shard: MissingShard) -> Finding:
    """The finding for a shard that a numbered set lacks."""
    return Finding("missing", shown(shard.name), None, 0, 0, shard.reason, None)


def _finding(path: Any, error: FileNotFoundError) -> Finding:
    name = shown(str(path))
    reason = "no such file" if error.errno == errno.ENOENT else str(error).removeprefix(f"{name}: ")
    return Finding("missing", name, None, 0, 0, reason, None)
