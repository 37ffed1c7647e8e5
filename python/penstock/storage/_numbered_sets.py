"""Numbered sets of shards: `name@10`, which means name-00000-of-00010 and the nine others."""

from __future__ import annotations

import os
import re

from penstock.storage.shard_lists import MOST_NAMES

COUNTED = re.compile(r"^(?P<stem>.+)@(?P<count>\d+|\*)(?P<rest>[^/]*)$")
_OF = re.compile(r"-(\d{5,})-of-(\d{5,})")


def numbered(path: str, match: re.Match[str]) -> list[str]:
    """The names of a numbered set, `name@N`."""
    stem, total, rest = match["stem"], int(match["count"]), match["rest"]
    if not 0 < total <= MOST_NAMES:
        raise FileNotFoundError(
            f"{path}: no such file (a set of shards has 1 to {MOST_NAMES} of them)"
        )
    width = max(5, len(str(total)))
    return [f"{stem}-{n:0{width}}-of-{total:0{width}}{rest}" for n in range(total)]


def complete(paths: list[str]) -> list[str]:
    """Check that no numbered set lacks a shard, and that no two sets have the same name (one may be left over from an
    earlier write). Returns the paths."""
    sets: dict[tuple[str, str], dict[int, set[int]]] = {}
    for path in paths:
        match = _OF.search(os.path.basename(path))
        if match is not None:
            at = path.rindex(match[0])
            name = path[:at], path[at + len(match[0]) :]
            sets.setdefault(name, {}).setdefault(int(match[2]), set()).add(int(match[1]))
    for (front, back), counts in sets.items():
        named = [f"{front}@{total}{back}" for total in sorted(counts)]
        if len(named) > 1:
            raise ValueError(
                f"{' and '.join(named)} are {len(named)} sets with the same name, perhaps left over from an earlier "
                "write; open one of them"
            )
        ((total, present),) = counts.items()
        missing = sorted(set(range(total)) - present) if total <= 10_000_000 else []
        if missing and "*" not in front + back:
            many = "" if len(missing) == 1 else f", and {len(missing) - 1} more"
            raise FileNotFoundError(
                f"{named[0]}: shard {missing[0]} of {total} is missing{many}; "
                "to read only some shards, pass a list of files"
            )
    return paths
