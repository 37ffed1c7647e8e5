"""Numbered sets of shards that have the same name as another, as files that are left over have."""

from __future__ import annotations

import os

from penstock.storage.numbered_sets import OF


def sets_of_same_name(path: str) -> list[str]:
    """The other numbered sets of the name of this local file, as `name@N`: x@16 for x-00000-of-00012, if the folder has
    x-00003-of-00016."""
    folder, name = os.path.split(path)
    own = OF.search(name)
    if own is None or not os.path.exists(path):
        return []
    before, after = name[: own.start()], name[own.end() :]
    totals: set[int] = set()
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            match = OF.search(entry.name) if entry.name.startswith(before) else None
            if match and (entry.name[: match.start()], entry.name[match.end() :]) == (
                before,
                after,
            ):
                totals.add(int(match[2]))
    start = os.path.join(folder, before)
    return [f"{start}@{total}{after}" for total in sorted(totals - {int(own[2])})]
