"""Checks that files form one dataset, with one format and common fields. If they do not, the error names a glob, folder
or file that opens each kind of file separately."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from penstock import formats
from penstock.errors import FormatError, PenstockError, SchemaError
from penstock.storage.base import Storage
from penstock.storage.lookalikes import is_of_another_program
from penstock.storage.paths import expand
from penstock.storage.skipped import FOREIGN, SkippedFile

_OF = re.compile(r"-\d{5,}-of-\d{5,}")
_PACKED = (".gz", ".zst", ".zstd", ".bz2", ".xz")
OF_EVERY_RECORD = ("__key__", "__url__")
"""Columns of every tar archive. Files that share only these columns have nothing in common."""
_MOST_FILES = 1000
"""At most this many files are examined to find out which files belong together."""


def without_foreign(
    paths: Sequence[str],
    skipped: list[SkippedFile],
    sets: Iterable[Sequence[str]],
    storage: Storage,
    damage: str,
) -> tuple[list[str], list[SkippedFile]]:
    """Move the files that are in no known format from `paths` to `skipped`; see `_foreign_in`."""
    foreign = [file for files in sets for file in _foreign_in(files, storage, damage)]
    left_out = {path for path, _ in foreign}
    return [path for path in paths if path not in left_out], [*skipped, *foreign]


def _foreign_in(paths: Sequence[str], storage: Storage, damage: str) -> list[SkippedFile]:
    """Return the files of a folder or a glob that are in no known format, by their names and their contents. Files are
    opened only if their names have several endings, and then one file for each ending.

    Raises:
        FormatError: the other files have several formats; or a file is not in the format that its name says, unless
            damage is skipped.
    """
    endings = _by_ending(paths)
    if len(endings) < 2:
        return []
    groups, unknown = _by_format(endings.values(), storage)
    foreign = [path for path in unknown if _is_foreign(path, storage)] if groups else []
    if damage == "error" or len(groups) != 1:
        _refuse_unknown([unknown[path] for path in unknown if path not in foreign], groups, storage)
    if len(groups) > 1:
        raise FormatError(
            f"these files are of several formats: {_counted(groups)}",
            file=os.path.commonpath(paths) or ".",
            hint=_advice(groups.values(), storage),
        )
    return [SkippedFile(path, FOREIGN) for path in foreign]


def _refuse_unknown(
    errors: Sequence[FormatError], groups: Mapping[str, Sequence[str]], storage: Storage
) -> None:
    if errors:
        if found := _globs(groups.values(), storage):
            errors[0].hint = f"without this file: {found}"
        raise errors[0]


def _by_ending(paths: Sequence[str]) -> dict[str, list[str]]:
    """The files by the ending of their names; one group, or none, if all have the same."""
    first = os.path.splitext(paths[0])[1]
    if first[1:].isalpha() and first not in _PACKED and all(p.endswith(first) for p in paths):
        return {}
    endings: dict[str, list[str]] = {}
    for path in paths:
        endings.setdefault(_ending(path), []).append(path)
    return endings


def _is_foreign(path: str, storage: Storage) -> bool:
    """Whether a file of no known format is surely no damaged shard: its ending is one of another program's, and so is
    its content."""
    if not any(map(str.isalpha, os.path.splitext(path)[1])):
        return False
    try:
        formats.by_path(path)
        return False
    except ValueError:
        pass
    source = storage.source(path)
    try:
        return is_of_another_program(source.read(0, min(source.size, 512)).to_bytes())
    finally:
        source.close()


def _by_format(
    groups: Iterable[Sequence[str]], storage: Storage
) -> tuple[dict[str, list[str]], dict[str, FormatError]]:
    """The files by format, and the files whose format is unknown, with the error. If the first file of a group has a
    format, so have the others."""
    found: dict[str, list[str]] = {}
    unknown: dict[str, FormatError] = {}
    waiting = list(groups)
    while waiting:
        files = waiting.pop(0)
        try:
            name = _format_of(files, storage)
        except FormatError as error:
            unknown[error.file or files[0]] = error
            waiting[:0] = [rest] if (rest := [one for one in files if one not in unknown]) else []
            continue
        if name is not None:
            found.setdefault(name, []).extend(files)
    return {name: sorted(files) for name, files in found.items()}, unknown


def _ending(path: str) -> str:
    """The end of a file's name, which all files of its kind share."""
    name = _OF.sub("", os.path.basename(path).lower())
    name, ending = os.path.splitext(name)
    if ending in _PACKED:
        ending = os.path.splitext(name)[1] + ending
    ending = re.sub(r"\d+", "#", ending)
    # A path without an ending may be a folder of images.
    return "/" if ending in ("", ".#") and os.path.isdir(path) else ending


def _format_of(paths: Sequence[str], storage: Storage) -> str | None:
    """The format of files with the same ending, detected from the first file with content; None if it is unknown."""
    for path in paths:
        if os.path.isdir(path):
            return "imagefolder"
        source = storage.source(path)
        try:
            if source.size:
                return formats.of(source).info.name
        finally:
            source.close()
    try:
        return formats.by_path(paths[0]).info.name
    except ValueError:
        return None


def refuse_disjoint(fields: Mapping[str, Sequence[str]], storage: Storage) -> None:
    """Raise SchemaError if files have no fields in common, neither directly nor through other files. The error names a
    file of each kind. `fields` has the names of each file's fields, by path; files without fields are ignored."""
    groups = _joined(fields)
    if len(groups) < 2:
        return
    named = {f"with {', '.join(sorted(names)[:5])}": files for names, files in groups}
    other = groups[1][1][0]
    raise SchemaError(
        f"has none of the fields of {groups[0][1][0]}; the files are of several kinds: {_counted(named)}",
        file=other,
        hint=_advice(named.values(), storage),
    )


def _joined(fields: Mapping[str, Sequence[str]]) -> list[tuple[set[str], list[str]]]:
    """Groups of files with common fields, each with all its field names, ordered by their first file."""
    groups: list[tuple[set[str], list[str]]] = []
    for path, given in fields.items():
        names = set(given).difference(OF_EVERY_RECORD)
        if not names:
            continue
        shared = [group for group in groups if group[0] & names]
        files = sorted([path, *(file for _, some in shared for file in some)])
        joined = names.union(*(names for names, _ in shared))
        first = min((groups.index(group) for group in shared), default=len(groups))
        groups = [group for group in groups if group not in shared]
        groups.insert(first, (joined, files))
    return groups


def fields_of(paths: Sequence[str], names: Callable[[int], Sequence[str]]) -> dict[str, list[str]]:
    """The field names of each file that can be opened separately. `names(n)` returns them for file n."""
    found: dict[str, list[str]] = {}
    for number, path in enumerate(paths[:_MOST_FILES]):
        try:
            found[path] = list(names(number))
        except (PenstockError, OSError):
            continue  # the error is raised when the file is read
    return found


# -- names that open the files of one kind --------------------------------------------------------


def _counted(groups: Mapping[str, Sequence[str]]) -> str:
    parts = [
        f"{len(files)} {name} ({os.path.basename(files[0])})" for name, files in groups.items()
    ]
    return ", ".join(parts[:5])


def _advice(groups: Iterable[Sequence[str]], storage: Storage) -> str:
    found = _globs(groups, storage)
    return f"open one kind alone: {found}" if found else "open the files of one kind, as a list"


def _globs(groups: Iterable[Sequence[str]], storage: Storage) -> str:
    """Globs or paths that open exactly the files of each group; empty if there are none."""
    found = [_glob_of(files, storage) for files in groups]
    return " or ".join(repr(one) for one in found[:5] if one is not None)


def _glob_of(files: Sequence[str], storage: Storage) -> str | None:
    wanted = sorted(files)
    for candidate in _candidates(wanted):
        try:
            if sorted(expand(candidate, storage).paths) == wanted:
                return candidate
        except (PenstockError, OSError, ValueError):
            continue
    return None


def _candidates(files: Sequence[str]) -> Iterator[str]:
    if len(files) == 1:
        yield files[0]
        return
    names = [os.path.basename(path) for path in files]
    front = glob.escape(re.sub(r"\d+$", "", _common_start(names)))
    back = _common_start([name[::-1] for name in names])[::-1]
    back = glob.escape(back[max(back.find("."), 0) :])
    folders = {os.path.dirname(path) for path in files}
    top = os.path.commonpath(folders)
    prefix = f"{glob.escape(top)}/" * bool(top) + "**/" * (len(folders) > 1)
    yield from (f"{prefix}*{back}", f"{prefix}{front}*{back}", f"{prefix}{front}*")
    if top:
        yield top


def _common_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    same = (n for n, (one, two) in enumerate(zip(first, last, strict=False)) if one != two)
    return first[: next(same, min(len(first), len(last)))]
