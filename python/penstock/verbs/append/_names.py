"""Choose between appending to the end of a file and writing a new shard, and name the new shard."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from dataclasses import dataclass
from typing import Any

from penstock import formats
from penstock.errors import UnsupportedError, shown
from penstock.storage.base import Storage
from penstock.storage.paths import expand
from penstock.verbs.write.names import SHARD_PATTERN

_OF = re.compile(r"-\d{5,}-of-\d{5,}")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Place:
    """The existing files and the new shard for more records. If `new` is None, they go to the end of the last file."""

    paths: list[str]
    new: str | None


def place_for(target: Any, shard: str | None, storage: Storage) -> Place:
    """Decide whether records go to the end of a file or to a new shard; `target` and `shard` are as for `append`.

    Raises:
        FileNotFoundError: there is nothing to append to.
        ValueError: the names do not determine the name of the next shard.
    """
    if not isinstance(target, (str, os.PathLike)):
        raise TypeError(
            f"append takes a path, a glob or a folder as its target, not {type(target)}"
        )
    if shard not in (None, "last", "new"):
        raise ValueError(f"shard={shard!r} is not one of 'last', 'new', None")
    path = os.fspath(target)
    if os.path.isfile(path) and storage.changes_in_place:
        if shard == "new":
            message = f"{path} is one file; for a new shard name the folder, or a pattern"
            raise ValueError(f"{message} such as 'train-*.tfrecord'")
        return Place([path], None)
    folder, name = os.path.split(path)
    if SHARD_PATTERN.search(name):
        parts = [glob.escape(part) for part in SHARD_PATTERN.split(name)[::2]]
        path = os.path.join(glob.escape(folder), "*".join(parts))
    paths = list(expand(path, storage).paths)
    if not storage.changes_in_place:
        _refuse_end(shard, path, paths)
    for folder in filter(os.path.isdir, paths):
        raise UnsupportedError(
            "records cannot be appended to a folder of images",
            file=folder,
            hint="write the new records to another folder, and open both",
        )
    if shard == "last":
        return Place(paths, None)
    return Place(paths, next_name(paths, path, can_extend=storage.changes_in_place))


def _refuse_end(shard: str | None, target: str, paths: list[str]) -> None:
    """Raise UnsupportedError if records would go to the end of an object in a store."""
    if shard == "last" or paths == [target]:
        raise UnsupportedError(
            "a store cannot add to the end of an object",
            file=shown(paths[-1]),
            hint="append to the folder or to a pattern such as 'train-*.tfrecord', which makes a new shard",
        )


def _extension_of(name: str) -> str:
    known = [end for fmt in formats.FORMATS for end in fmt.info.extensions]
    return max((end for end in known if name.lower().endswith(end)), key=len, default="")


def _instead(last: str, can_extend: bool) -> str:
    """What to do if no new shard can be named: only some formats take records at the end of a file, and no store."""
    if not can_extend:
        return "write the records to another folder, and open both"
    try:
        can_append = formats.by_path(last).info.can_append
    except ValueError:
        can_append = True  # not known before the file is opened
    if can_append:
        return "append to the last one with shard='last'"
    return "write the records to another file, and open both"


def next_name(paths: list[str], target: str, *, can_extend: bool) -> str:
    """Return the name of the shard that follows these files. Raise ValueError if the names have no running number or
    contain the number of shards, or if the new shard would not be read last."""
    last = paths[-1]
    folder, name = os.path.split(last)
    if any(_OF.search(os.path.basename(path)) for path in paths):
        raise ValueError(
            f"{name} contains the number of shards, so a new shard would rename all the files; "
            f"{_instead(last, can_extend)}, or write the dataset again"
        )
    # A number in a file extension, as in .h5, is not a shard number.
    end = len(name) - len(_extension_of(name))
    for found in reversed(list(_NUMBER.finditer(name, 0, end))):
        stem, suffix = name[: found.start()], name[found.end() :]
        fellow = re.compile(rf"{re.escape(stem)}(\d+){re.escape(suffix)}")
        numbers = [fellow.fullmatch(os.path.basename(path)) for path in paths]
        if all(numbers) and {os.path.dirname(path) for path in paths} == {folder}:
            following = 1 + max(int(match[1]) for match in numbers if match)
            new = os.path.join(folder, f"{stem}{following:0{len(found[0])}d}{suffix}")
            _check_order(new, paths, target)
            return new
    raise ValueError(
        f"the names of the {len(paths)} files of {target} do not determine the name of the next one; "
        f"{_instead(last, can_extend)}"
    )


def _check_order(new: str, paths: list[str], target: str) -> None:
    """Raise ValueError if `target` does not match the new name, or if the new shard would not be read last."""
    if max([*paths, new]) != new:
        raise ValueError(
            f"{new} would be read before {max(paths)}, since files are read in the order of their "
            "names; rename them with more digits"
        )
    is_folder = all(path.startswith(f"{target.rstrip('/')}/") for path in [*paths, new])
    if not (is_folder or os.path.isdir(target)) and not fnmatch.fnmatchcase(new, target):
        raise ValueError(f"the next shard would be {new}, which {target} does not match")
