"""`bake_fields` writes the fields of overlays into the records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.open import opened
from penstock.datasets.unfinished import expected
from penstock.engine.cluster import machines_of
from penstock.errors import shown
from penstock.overlay.places import OverlayFolder, folder_option, places_of
from penstock.storage.base import Storage
from penstock.verbs.fields._baking import baking, left_to_bake, remove_overlays
from penstock.verbs.fields._change import How, Path, refuse_in_place, rewritten
from penstock.verbs.fields._rewrite import journal_of_baking
from penstock.verbs.fields.overlays import overlays_in
from penstock.verbs.progress import Progress


# Complexity: a killed run in place may have left any of the steps.
def bake_fields(
    source: Any,
    *,
    into: Path | None = None,
    in_place: bool = False,
    overlays: Path | None = None,
    overwrite: bool = False,
    verify: bool = False,
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Summary:
    """Write the fields of overlays into the records themselves.

    With `in_place`, each shard's overlays are removed after its new file has replaced the shard. With `into`, they are
    kept. The other arguments are as for `add_fields`; either `into` or `in_place` is required. With `overlays`, the
    overlays in this folder are written too, and those next to the files.

    Raises:
        ValueError: these files have no overlays.
        ChecksumError: an old record is damaged.
        StaleIndexError: a shard has changed since its overlay was made.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "two.tfrecord", overwrite=True)
        >>> _ = ps.add_fields("two.tfrecord", {"score": [0.5, 1.5]}, overwrite=True)
        >>> _ = ps.bake_fields("two.tfrecord", in_place=True)
        >>> ps.overlays("two.tfrecord"), ps.open("two.tfrecord")[1]
        ([], {'id': 2, 'score': 1.5})
    """
    plain, folder = _bare(source, overlays, storage, storage_options)
    if in_place:
        refuse_in_place(plain)
    paths, left = tuple(plain.paths), list(range(len(plain.paths)))
    places = places_of(plain.files.storage, folder)
    journal = journal_of_baking(paths, folder) if in_place else None
    if journal is not None and journal.is_of_this_job():
        left = left_to_bake(paths, places, journal)
    kept = overlays_in(places, [paths[shard] for shard in left]) if left else []
    if not kept and (journal is None or len(left) == len(paths)):
        raise ValueError(f"{shown(paths[0])} has no overlays")
    if not kept and journal is not None:
        journal.load()
        journal.forget()  # this was the only step left
        return Summary(paths, len(plain), sum(map(os.path.getsize, paths)))
    # Already baked shards are not opened, because their fields may have other types.
    overlaid = plain.reopened(source=[paths[shard] for shard in left], overlays=folder or True)
    edit = baking(overlaid, left)
    machines = None if on is None else machines_of(on)
    how = How(
        overwrite,
        verify,
        index,
        threads,
        progress,
        target_storage,
        target_storage_options,
        machines,
    )
    published = (lambda shard: remove_overlays(paths[shard], places)) if in_place else None
    return rewritten(plain, edit, into, in_place, how, published)


def _bare(
    source: Any,
    overlays: Path | None,
    storage: Storage | None,
    storage_options: Mapping[str, Any] | None,
) -> tuple[Dataset, OverlayFolder | None]:
    """Return the dataset without its overlays, and the folder that has some of them."""
    if isinstance(source, Dataset):
        shown = opened(source, storage, storage_options, overlays=overlays).whole("bake_fields")
        return shown.reopened(columns=None, overlays=False), shown.files.overlay_folder
    with expected():
        plain = opened(source, storage, storage_options, overlays=False)
    return plain, folder_option(overlays)
