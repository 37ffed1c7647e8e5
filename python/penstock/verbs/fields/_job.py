"""A job that changes fields, and the checks before anything is written."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock import formats
from penstock.columns.inferred import has_no_records
from penstock.datasets.dataset import Dataset
from penstock.engine.cluster import Machines
from penstock.errors import SchemaError, UnsupportedError, shown
from penstock.framing.read.framed import FramedReader
from penstock.payloads.example.plans import is_raw
from penstock.storage.base import Storage
from penstock.storage.urls import real_path
from penstock.verbs.fields._edit import REPLACE_HINT, Edit
from penstock.verbs.own_names import refuse_name_of_another_format
from penstock.verbs.progress import Progress


@dataclass(frozen=True, slots=True)
class Job:
    dataset: Dataset
    targets: tuple[str, ...]
    edit: Edit
    in_place: bool
    overwrite: bool
    verify: bool
    index: bool | str
    threads: int | None
    progress: Progress | None
    place: Storage
    """Where the new files are written."""
    on: Machines | None = None
    published: Callable[[int], None] = lambda shard: None
    """Called with the number of each shard whose new file is complete, from this run or an earlier run."""


_SPARE_BYTES = 16 << 20
"""Disk space to leave free for other programs."""


def check(job: Job, old: Dataset, todo: list[int]) -> None:
    if old.options.damage != "error":
        raise UnsupportedError(
            f"fields cannot be changed with damage={old.options.damage!r}: records would be lost",
            hint="run penstock repair --in-place SOURCE first",
        )
    has_records = not has_no_records(old.schema)
    if is_raw(old.schema) and has_records and isinstance(old.files.reader(0), FramedReader):
        message = "these records are not Examples, so they have no fields to change"
        raise UnsupportedError(message, file=old.paths[0])
    _check_kinds(old, len(todo))
    _check_names(job.edit, old.schema.names, old.paths[0])
    if not job.in_place:
        _check_targets(job, old, todo)
    _check_space(job, old, todo)


def check_changes(
    drop: Sequence[str], rename: Mapping[str, str], known: list[str], path: str
) -> None:
    """Raise SchemaError if a field to drop or rename does not exist, or the new name of a field does."""
    for name in (*drop, *rename):
        if name not in known:
            message = f"no such field; there are: {', '.join(known)}"
            hint = 'open(..., infer_records="all") also finds fields that only later records have'
            raise SchemaError(message, field=name, file=path, hint=hint)
    staying = {*known} - {*rename} - {*drop}
    for after in rename.values():
        if after in staying:
            raise SchemaError("the records already have this field", field=after, file=path)


def _check_names(edit: Edit, known: list[str], path: str) -> None:
    check_changes(edit.drop, dict(edit.rename), known, path)
    for name in () if edit.new is None else edit.new.schema.names:
        if name in known and not edit.replace:
            message = "the records already have this field"
            raise SchemaError(message, field=name, file=path, hint=REPLACE_HINT)


def refuse_sources(job: Job) -> None:
    """Raise ValueError if a target is one of the sources."""
    sources = set(map(real_path, job.dataset.paths))
    for target in job.targets:
        if real_path(target) in sources:
            raise ValueError(f"{shown(target)} would be written over itself; use in_place=True")


def _check_targets(job: Job, old: Dataset, todo: list[int]) -> None:
    refuse_sources(job)
    for place, shard in enumerate(todo):
        kind = formats.by_name(old.files.format_name(place))
        refuse_name_of_another_format(kind, old.paths[place], job.targets[shard])
    if not job.overwrite and job.place.changes_in_place:  # otherwise the journal does that
        for target in (job.targets[shard] for shard in todo):
            if job.place.exists(target):
                raise FileExistsError(f"{target} exists; pass overwrite=True to replace it")


def _check_kinds(old: Dataset, num_shards: int) -> None:
    for place in range(num_shards):
        info = formats.by_name(old.files.format_name(place)).info
        if info.is_folder or not info.can_write:
            raise UnsupportedError(
                f"the fields of {info.name} files cannot be changed: "
                + ("only write and convert write them" if info.is_folder else "they are read-only"),
                file=old.paths[place],
                hint="penstock fields add without --into or --in-place stores new fields next to "
                "them; penstock convert writes another format",
            )


def _check_space(job: Job, old: Dataset, todo: list[int]) -> None:
    """Raise OSError if the disk has no room. A job in place needs room for one new file at a time, any other job for
    all new files."""
    if not job.place.changes_in_place:
        return
    sizes = [old.files.storage.num_bytes(path) for path in old.paths]
    wanted = max(sizes) if job.in_place else sum(sizes)
    folder = os.path.dirname(job.targets[todo[0]]) or "."
    while not os.path.exists(folder):
        folder = os.path.dirname(folder) or "."
    free = shutil.disk_usage(folder).free
    if free < wanted + _SPARE_BYTES:
        spare = f"{_SPARE_BYTES >> 20} MiB for other programs"
        message = f"{wanted:,} bytes are needed, plus {spare}; {free:,} are free"
        raise OSError(errno.ENOSPC, message, folder)
