"""Checks the names of files that are written in the format of their source."""

from __future__ import annotations

import os

from penstock import formats
from penstock.contract.format import Format
from penstock.errors import UnsupportedError


def refuse_name_of_another_format(kind: Format, source: str, target: str) -> None:
    """Raise UnsupportedError if a file of a format would get a name that belongs to another format. It may always have
    the ending of its source."""
    ending = os.path.splitext(target)[1].lower()
    if kind.info.is_folder or ending == os.path.splitext(source)[1].lower():
        return
    try:
        other = formats.by_path(target).info
    except ValueError:
        return  # this ending belongs to no format
    if other.name == kind.info.name or ending in kind.info.extensions:
        return
    better = os.path.splitext(target)[0] + next(iter(kind.info.extensions), "")
    raise UnsupportedError(
        f"the new file would have the format of its source, {kind.info.name}, but this is a name for {other.name}",
        file=target,
        hint=f"write {better} instead, and convert that with penstock.convert",
    )
