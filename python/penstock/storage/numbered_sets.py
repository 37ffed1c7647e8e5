"""Numbered sets of shards: `name@10`, which means name-00000-of-00010 and the nine others."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
from collections.abc import Collection
from typing import NamedTuple

from penstock.storage.shard_lists import MOST_NAMES

COUNTED = re.compile(r"^(?P<stem>.+)@(?P<count>\d+|\*)(?P<rest>[^/]*)$")
OF = re.compile(r"-(\d{5,})-of-(\d{5,})")
_PACKED = re.compile(r"\.(gz|gzip|zz|zlib|zst|zstd|bz2|xz)$", re.IGNORECASE)
"""The endings of compressed files."""
_MOST_NAMED = 100
_ADVICE = 'open(..., missing_shards="ignore") reads the others, and `penstock manifest` lists these files as a dataset'


class MissingShard(NamedTuple):
    """A shard that a numbered set lacks. If there are very many, the last one stands for the rest."""

    name: str
    reason: str


def numbered(path: str, match: re.Match[str]) -> list[str]:
    """The names of a numbered set, `name@N`."""
    stem, total, rest = match["stem"], int(match["count"]), match["rest"]
    if not 0 < total <= MOST_NAMES:
        raise FileNotFoundError(
            f"{path}: no such file (a set of shards has 1 to {MOST_NAMES} of them)"
        )
    return [_name(stem, number, total, rest) for number in range(total)]


def present(
    names: list[str],
    match: re.Match[str],
    there: Collection[str],
    missing: list[MissingShard] | None,
) -> list[str]:
    """Those of the names of `name@N` that exist. The others are noted as missing, or an error if `missing` is None."""
    found = [name for name in names if name in there]
    numbers = [number for number, name in enumerate(names) if name not in there]
    if not found or (numbers and missing is None):
        advice = f"; {_ADVICE}" if found else ""
        reason = f"no such file, although {match[0]} includes it{advice}"
        raise FileNotFoundError(errno.ENOENT, reason, names[numbers[0]])
    if numbers:
        note_missing(match["stem"], numbers, len(names), match["rest"], missing)
    return found


def complete(
    paths: list[str], pattern: str | None = None, missing: list[MissingShard] | None = None
) -> list[str]:
    """Check that no numbered set lacks a shard, and that no two sets have the same name (one may be left over from an
    earlier write). Some shards of a set may be compressed and others not. A pattern of a part of a set, such as
    `train-000[0-4]*`, lacks only what it would match. Returns the paths.

    Args:
        pattern: the pattern that the paths match; None for a whole folder, or for `name@*`.
        missing: where missing shards are noted; None raises an error.
    """
    sets: dict[tuple[str, str], dict[int, set[int]]] = {}
    for path in paths:
        match = OF.search(os.path.basename(path))
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
        if total > 10_000_000 or "*" in front + back:
            continue
        present = others.get((front, _PACKED.sub("", back), total), own)
        numbers = sorted(set(range(total)) - present)
        if pattern is not None:
            numbers = [n for n in numbers if _is_match(_name(front, n, total, back), pattern)]
        if numbers:
            note_missing(front, numbers, total, back, missing)
    return paths


def note_missing(
    front: str, numbers: list[int], total: int, back: str, missing: list[MissingShard] | None
) -> None:
    """Note which shards of a set are missing, or raise FileNotFoundError if `missing` is None."""
    named, more = f"{front}@{total}{back}", len(numbers) - 1
    if missing is None:
        many = f", and {more} more" if more else ""
        raise FileNotFoundError(
            f"{named}: shard {numbers[0]} of {total} is missing{many}; {_ADVICE}"
        )
    for number in numbers[:_MOST_NAMED]:
        reason = f"shard {number} of {total} is missing"
        missing.append(MissingShard(_name(front, number, total, back), reason))
    if len(numbers) > _MOST_NAMED:
        left = len(numbers) - _MOST_NAMED
        missing.append(MissingShard(named, f"{left} more of its {total} shards are missing"))


def _name(front: str, number: int, total: int, back: str) -> str:
    width = max(5, len(str(total)))
    return f"{front}-{number:0{width}}-of-{total:0{width}}{back}"


def _is_match(path: str, pattern: str) -> bool:
    """Whether a pattern that matches the other shards of a set would match this one, by the last part of the name."""
    return fnmatch.fnmatchcase(os.path.basename(path), pattern.rsplit("/", 1)[-1])


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
