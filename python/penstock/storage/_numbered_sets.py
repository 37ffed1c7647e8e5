"""Numbered sets of shards: `name@10`, which means name-00000-of-00010 and the nine others."""

from __future__ import annotations

import os
import re

from penstock.storage.shard_lists import MOST_NAMES

COUNTED = re.compile(r"^(?P<stem>.+)@(?P<count>\d+|\*)(?P<rest>[^/]*)$")
_OF = re.compile(r"-(\d{5,})-of-(\d{5,})")
_PACKED = re.compile(r"\.(gz|gzip|zz|zlib|zst|zstd|bz2|xz)$", re.IGNORECASE)
"""The endings of compressed files."""


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
    earlier write). Some shards of a set may be compressed and others not. Returns the paths."""
    sets: dict[tuple[str, str], dict[int, set[int]]] = {}
    for path in paths:
        match = _OF.search(os.path.basename(path))
        if match is not None:
            at = path.rindex(match[0])
            name = path[:at], path[at + len(match[0]) :]
            sets.setdefault(name, {}).setdefault(int(match[2]), set()).add(int(match[1]))
    others = _packed_elsewhere(sets)
    for (front, back), counts in sets.items():
        named = [f"{front}@{total}{back}" for total in sorted(counts)]
        if len(named) > 1:
            raise ValueError(
                f"{' and '.join(named)} are {len(named)} sets with the same name, perhaps left over from an earlier "
                "write; open one of them"
            )
        ((total, own),) = counts.items()
        present = others.get((front, _PACKED.sub("", back), total), own)
        missing = sorted(set(range(total)) - present) if total <= 10_000_000 else []
        if missing and "*" not in front + back:
            many = "" if len(missing) == 1 else f", and {len(missing) - 1} more"
            raise FileNotFoundError(
                f"{named[0]}: shard {missing[0]} of {total} is missing{many}; "
                "to read only some shards, pass a list of files"
            )
    return paths


def _packed_elsewhere(
    sets: dict[tuple[str, str], dict[int, set[int]]],
) -> dict[tuple[str, str, int], set[int]]:
    """The shards of each set whose names differ only by an ending for a compression. A set of which a shard exists twice
    is left out: it would be read twice."""
    found: dict[tuple[str, str, int], list[set[int]]] = {}
    for (front, back), counts in sets.items():
        for total, present in counts.items():
            found.setdefault((front, _PACKED.sub("", back), total), []).append(present)
    joined = {name: set[int]().union(*parts) for name, parts in found.items()}
    return {name: all_ for name, all_ in joined.items() if len(all_) == sum(map(len, found[name]))}
