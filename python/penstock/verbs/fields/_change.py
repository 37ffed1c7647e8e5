"""The steps that all verbs share that change fields: the source is opened, and written to a target."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.datasets.unfinished import expected
from penstock.engine.cluster import Machines
from penstock.engine.pipeline import checked_threads
from penstock.errors import UnsupportedError, command
from penstock.overlay.places import folder_option
from penstock.storage.base import Storage
from penstock.storage.paths import index_option
from penstock.storage.places import storage_of
from penstock.storage.urls import refuse_web_target
from penstock.verbs.fields._edit import Edit
from penstock.verbs.fields._elsewhere import rewrite_elsewhere
from penstock.verbs.fields._job import Job
from penstock.verbs.fields._rewrite import rewrite
from penstock.verbs.fields.rewrite_journal import Journal
from penstock.verbs.progress import Progress
from penstock.verbs.write.names import Names, with_notes_of_names

Path = str | os.PathLike[str]


def noted(made: Summary, notes: Sequence[str]) -> Summary:
    return dataclasses.replace(made, notes=(*made.notes, *notes))


def left_of_job(dataset: Dataset) -> Dataset | None:
    """Return the files that an unfinished job in place has not changed yet, or None if there is no such job."""
    refuse_in_place(dataset)
    near = dataset.files.storage
    written = Journal(dataset.paths, dataset.paths, None, near, in_place=True).written()
    left = [path for shard, path in enumerate(dataset.paths) if shard not in written]
    return dataset.reopened(source=left, columns=None) if written and left else None


def opened_whole(
    source: Any,
    storage: Storage | None,
    storage_options: Mapping[str, Any] | None,
    overlays: Path | None,
    checksums: Any = "all",
    *,
    is_beside: bool = False,
) -> Dataset:
    """Return the source as a dataset that is not a view of some of the records. `is_beside`: an overlay is to be
    written, for which the folder `overlays` is made if it is missing."""
    folder = folder_option(overlays, may_be_missing=is_beside)
    with nullcontext() if is_beside else expected():  # a change in place continues it, or refuses
        found = opened(source, storage, storage_options, overlays=folder, checksums=checksums)
    return found.whole("changing fields") if isinstance(source, Dataset) else found


def with_overlays(dataset: Dataset) -> Dataset:
    """Return the dataset with its overlays and all columns, as a further overlay changes it."""
    if dataset.columns is None and dataset.files.overlays is not None:
        return dataset
    return dataset.reopened(columns=None, overlays=dataset.files.overlay_folder or True)


def refuse_in_place(dataset: Dataset) -> None:
    """Raise UnsupportedError if the files of a dataset cannot be replaced one by one as they are changed."""
    if not dataset.files.storage.changes_in_place:
        raise UnsupportedError(
            "an object in a store cannot be changed in place",
            file=dataset.paths[0],
            hint="into= with another name writes new objects; without into= and in_place= the change is stored next "
            "to the objects, as an overlay",
        )


@dataclass(frozen=True, slots=True)
class How:
    """The options that all rewriting verbs share."""

    overwrite: bool
    verify: bool
    index: bool | str
    threads: int | None
    progress: Progress | None
    target_storage: Storage | None
    target_storage_options: Mapping[str, Any] | None = field(repr=False)  # has secrets
    on: Machines | None = None


def rewritten(
    dataset: Dataset,
    edit: Edit,
    into: Path | None,
    in_place: bool,
    how: How,
    published: Callable[[int], None] | None = None,
) -> Summary:
    if (into is None) == (not in_place):
        raise ValueError("pass either into= or in_place=True")
    if in_place:
        refuse_in_place(dataset)
    if dataset.files.overlays is not None and edit.baking is None:
        folder = dataset.files.overlay_folder
        where = () if folder is None else ("--overlays", folder.path)
        bake = command("penstock", "fields", "bake", "--in-place", "SOURCE", *where)
        raise UnsupportedError(
            "these files have overlays, which would be lost",
            file=dataset.paths[0],
            hint=f"run {bake} first, or leave out into= and in_place= to keep "
            "the change next to the files too; open(..., overlays=False) drops them",
        )
    paths = tuple(dataset.paths)
    targets = paths if into is None else _targets(paths, os.fspath(into))
    index, threads = index_option(how.index), checked_threads(how.threads)
    place = dataset.files.storage
    if into is not None:
        place = storage_of(targets, how.target_storage, how.target_storage_options)
    options = (how.overwrite, how.verify, index, threads, how.progress, place, how.on)
    job = Job(dataset, targets, edit, in_place, *options)
    if published is not None:
        job = dataclasses.replace(job, published=published)
    made = rewrite(job) if place.changes_in_place else rewrite_elsewhere(job)
    return made if into is None else with_notes_of_names(made, os.fspath(into))


def _targets(paths: tuple[str, ...], into: str) -> tuple[str, ...]:
    refuse_web_target(into)
    is_folder = into.endswith(("/", os.sep)) or os.path.isdir(into)
    if not is_folder and (len(paths) == 1 or "{shard" in into):
        names = Names(into, (), len(paths) > 1, len(paths))
        return tuple(names.final(number, len(paths)) for number in range(len(paths)))
    return tuple(os.path.join(into, os.path.basename(path)) for path in paths)
