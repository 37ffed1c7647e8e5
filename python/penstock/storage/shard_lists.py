"""Expands WebDataset's lists of shards: names with braces, and the JSON index of wids.

```
{000..003}   000 001 002 003: a number with a leading zero sets the width
{8..11}      8 9 10 11;  {00..10..5} has a step;  {003..000} counts down
{a,b}        a or b; braces may be nested, and several in a name are combined, left to right
a::b         both
```

An index is `{"wids_version": 1, "shardlist": [{"url": ..., "nsamples": ...}, ...]}`. It lists files in its folder;
other names are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.columns.facts import is_path, parsed
from penstock.errors import FormatError, LimitError, StaleIndexError, UnsupportedError
from penstock.limits import Limits
from penstock.storage.base import Storage

MOST_NAMES = 1_000_000
_MOST_BYTES = 64 << 20
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([a-zA-Z])\.\.([a-zA-Z])")


def has_braces(text: str) -> bool:
    """Whether a text has braces that stand for several names."""
    return _first(text, 0) is not None


def braces(text: str) -> list[str]:
    """Expand a text with braces to all names that it stands for, in order. Raises LimitError for more than a million.

    Example:
        >>> from penstock.storage.shard_lists import braces
        >>> braces("train-{08..10}.tar")
        ['train-08.tar', 'train-09.tar', 'train-10.tar']
    """
    found = [""]
    at = 0
    while (group := _first(text, at)) is not None:
        start, end, choices = group
        if len(found) * len(choices) > MOST_NAMES:
            raise LimitError(f"{text} stands for more than {MOST_NAMES} names")
        middle = text[at:start]
        found = [before + middle + choice for before in found for choice in choices]
        at = end
    return [before + text[at:] for before in found]


def _first(text: str, at: int) -> tuple[int, int, list[str]] | None:
    """The start, end and choices of the first braces from `at` on that have several choices."""
    while (start := text.find("{", at)) >= 0:
        if start and text[start - 1] == "$":
            at = start + 1
            continue
        end = _closing(text, start)
        choices = None if end is None else _choices(text[start + 1 : end - 1])
        if end is not None and choices is not None:
            return start, end, choices
        at = start + 1
    return None


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return None


def _choices(inner: str) -> list[str] | None:
    if (match := _RANGE.fullmatch(inner)) is not None:
        return _numbers(match[1], match[2], match[3])
    if (match := _LETTERS.fullmatch(inner)) is not None:
        first, last = ord(match[1]), ord(match[2])
        step = 1 if first <= last else -1
        return [chr(code) for code in range(first, last + step, step)]
    parts = _parts(inner)
    if len(parts) == 1:
        return None
    found = [choice for part in parts for choice in braces(part)]
    if len(found) > MOST_NAMES:
        raise LimitError(f"{{{inner}}} stands for more than {MOST_NAMES} names")
    return found


def _numbers(first: str, last: str, step: str | None) -> list[str]:
    size = abs(int(step or 1)) or 1
    low, high = int(first), int(last)
    if abs(high - low) // size >= MOST_NAMES:
        raise LimitError(f"{{{first}..{last}}} stands for more than {MOST_NAMES} names")
    width = 0
    if any(
        len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0") for text in (first, last)
    ):
        width = max(len(first), len(last))
    numbers = range(low, high + 1, size) if low <= high else range(low, high - 1, -size)
    return [f"{number:0{width}}" for number in numbers]


def _parts(inner: str) -> list[str]:
    """Split at the commas outside inner braces."""
    parts, depth = [""], 0
    for letter in inner:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


# -- the index of wids ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShardList:
    """The shards in an index, and their record counts."""

    path: str
    paths: tuple[str, ...]
    counts: tuple[int, ...]

    def check(self, counts: Sequence[int]) -> None:
        """Raise StaleIndexError if the shards have other record counts."""
        for path, said, found in zip(self.paths, self.counts, counts, strict=True):
            if said != found:
                message = f"the shard does not have the number of records that {self.path} lists"
                raise StaleIndexError(message, file=path, expected=said, found=found)


def shard_list(source: Any, storage: Storage) -> ShardList | None:
    """The shards in a JSON index; None if `source` is not such a file."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = os.fspath(source)  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(path, str) or not path.endswith(".json") or not storage.exists(path):
        return None
    found = _json(path, storage)
    if not isinstance(found, dict) or not ({"shardlist", "datasets"} & set(found)):  # pyright: ignore[reportUnknownArgumentType]
        return None
    entries = _entries(found, path, storage, [path])
    if not entries:
        raise FormatError("the index names no shards", file=path)
    entries.sort()
    return ShardList(path, tuple(url for url, _ in entries), tuple(count for _, count in entries))


def _json(path: str, storage: Storage) -> Any:
    if os.path.isdir(path):
        return None
    source = storage.source(path)
    try:
        if source.size > _MOST_BYTES:
            raise LimitError(f"the JSON file is larger than {_MOST_BYTES} bytes", file=path)
        return parsed(source.read(0, source.size).to_bytes(), _MOST_BYTES)
    except LimitError:
        raise
    except FormatError:
        return None
    finally:
        source.close()


def _entries(
    facts: dict[str, Any], path: str, storage: Storage, read: list[str], level: int = 0
) -> list[tuple[str, int]]:
    """The shards of an index and of its nested indexes. `read` lists the index files that were already read."""
    if level > Limits().nesting:
        raise LimitError(f"indexes are nested more than {Limits().nesting} deep", file=path)
    if facts.get("wids_version", 1) != 1:
        raise UnsupportedError(
            f"wids_version {facts['wids_version']!r} is not supported", file=path
        )
    base = facts.get("base", "")
    if not is_path(base):
        raise FormatError("the base of the index is not a path", file=path)
    found = [_entry(shard, base, path) for shard in _dicts(facts.get("shardlist", []), path)]
    for other in _dicts(facts.get("datasets", []), path):
        if "shardlist" in other:
            found += _entries({"base": base, **other}, path, storage, read, level + 1)
        elif is_path(url := other.get("source_url")) and not level:
            place = _inside(base, url, path)
            if place in read:
                raise FormatError(f"the index names {place} twice", file=path)
            read.append(place)
            inner = _json(place, storage)
            if not isinstance(inner, dict):
                raise FormatError(f"{place} is not an index", file=path)
            found += _entries(inner, place, storage, read, level + 1)  # pyright: ignore[reportUnknownArgumentType]
    if len(found) > MOST_NAMES:
        raise LimitError(f"the index lists more than {MOST_NAMES} shards", file=path)
    return found


def _entry(shard: dict[str, Any], base: str, path: str) -> tuple[str, int]:
    url, count = shard.get("url"), shard.get("nsamples")
    if not is_path(url) or type(count) is not int or count < 0:
        raise FormatError("a shard of the index lacks its url or nsamples", file=path)
    return _inside(base, url, path), count


def _dicts(entries: Any, path: str) -> list[dict[str, Any]]:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):  # pyright: ignore[reportUnknownVariableType]
        raise FormatError("the index is not a list of shards", file=path)
    return entries  # pyright: ignore[reportUnknownVariableType]


def _inside(base: str, url: str, path: str) -> str:
    """The path of a shard, which must be in the folder of its index or below."""
    name = os.path.normpath(os.path.join(base, url))
    outside = os.path.isabs(name) or name.split(os.sep, 1)[0] == os.pardir
    if outside or "://" in url or "://" in base or ":" in url.split("/", 1)[0]:
        raise UnsupportedError(
            f"the index names {os.path.join(base, url)!r}, which is not in its folder",
            file=path,
            hint="open(...) with a list of the shards themselves",
        )
    return os.path.join(os.path.dirname(path), name)
