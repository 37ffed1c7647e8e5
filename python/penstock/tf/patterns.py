"""Finds files by TensorFlow's patterns.

`*` and `?` match anything but a slash, including a leading dot; `[ab]`, `[!ab]` and `[^ab]` match one character; a
backslash quotes the next character. Braces have no meaning, and `**` is the same as `*`. If the first part of a
relative pattern has wildcards, the paths begin with `./`, as in TensorFlow.
"""

from __future__ import annotations

import os
import re

_MAGIC = re.compile(r"[*?\[\\]")


def matching(pattern: str) -> list[str]:
    """The paths that match, in any order."""
    if not _MAGIC.search(pattern):
        return [pattern] if os.path.exists(pattern) else []
    parts = [part for part in pattern.split("/") if part]
    found = ["/" if pattern.startswith("/") else "./" if _MAGIC.search(parts[0]) else ""]
    for depth, part in enumerate(parts):
        is_last = depth == len(parts) - 1
        found = [
            os.path.join(folder, name)
            for folder in found
            for name in _names(folder, part)
            if is_last or os.path.isdir(os.path.join(folder, name))
        ]
    return found


def _names(folder: str, part: str) -> list[str]:
    if not _MAGIC.search(part):
        return [part] if os.path.exists(os.path.join(folder, part)) else []
    wanted = expression(part)
    try:
        return [name for name in os.listdir(folder or ".") if wanted.fullmatch(name)]
    except OSError:
        return []


def expression(part: str) -> re.Pattern[str]:
    """The regular expression for one name in a pattern."""
    made, place = "", 0
    while place < len(part):
        letter = part[place]
        place += 1
        if letter == "*":
            made += "[^/]*"
        elif letter == "?":
            made += "[^/]"
        elif letter == "\\" and place < len(part):
            made += re.escape(part[place])
            place += 1
        elif letter == "[" and (end := part.find("]", place + 1)) > 0:
            inside = part[place:end]
            is_not = inside[:1] in ("!", "^")
            letters = re.sub(r"([\\\]\[^&~|])", r"\\\1", inside[is_not:])
            made += f"[{'^' if is_not else ''}{letters}]"
            place = end + 1
        else:
            made += re.escape(letter)
    return re.compile(made, re.DOTALL)
