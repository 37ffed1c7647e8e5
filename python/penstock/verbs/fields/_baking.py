"""The shards that are still to be baked, and the removal of overlays that are baked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.datasets.dataset import Dataset
from penstock.datasets.open import open as open_dataset
from penstock.limits import limits_from
from penstock.overlay.file import find
from penstock.overlay.places import Place
from penstock.verbs.fields._edit import Edit, facts_of_baking
from penstock.verbs.fields._new_fields import Baked
from penstock.verbs.fields.overlays import identify, overlays_in, remove_from
from penstock.verbs.fields.rewrite_journal import Journal


def left_to_bake(paths: tuple[str, ...], places: Sequence[Place], journal: Journal) -> list[int]:
    """Return the shards that a killed bake has not written, after removing the overlays of written shards."""
    written = journal.written()
    for shard in written:
        _remove_baked(paths[shard], places)
    if written and overlays_in(places, [paths[shard] for shard in written]):
        journal.forget()  # newer overlays exist for written shards, so all shards are to be baked
        written = []
    return [shard for shard in range(len(paths)) if shard not in written]


def baking(shown: Dataset, shards: Sequence[int]) -> Edit:
    """Return the edit that writes into the records what overlays show.

    Args:
        shown: the shards to bake, with their overlays.
        shards: the numbers of these shards in the job.
    """
    overlays = shown.files.overlays
    assert overlays is not None, "there are overlays to bake"
    own = shown.reopened(columns=None, overlays=False).schema.names
    changed = overlays.changed(own)
    new = _to_bake(list(overlays.fields), changed)
    drop = tuple(old for old, now in changed.items() if now is None or now in new)
    rename = tuple((old, now) for old, now in changed.items() if now and now not in new)
    added = Baked(shown, new, shards) if new else None
    job = facts_of_baking(shown.files.overlay_folder)
    return Edit(new=added, drop=drop, rename=rename, replace=True, baking=job)


def _to_bake(new: list[str], changed: Mapping[str, str | None]) -> list[str]:
    """Return the fields whose values are written: the fields of overlays, and each field whose old name another field
    has now."""
    taken = [now for old, now in changed.items() if old in new and now and now not in new]
    return _to_bake([*new, *taken], changed) if taken else new


def remove_overlays(path: str, places: Sequence[Place]) -> None:
    """Remove the overlays of a file."""
    for place in places:
        for overlay in find(path, place, limits_from(None)):
            remove_from(place, [path], overlay.name)


def _remove_baked(path: str, places: Sequence[Place]) -> None:
    """Remove the overlays that were made for a file before it was replaced."""
    state = identify(open_dataset(path, overlays=False), 0)
    for place in places:
        for overlay in find(path, place, limits_from(None)):
            if not state.fits(overlay.identity):
                remove_from(place, [path], overlay.name)
        place.remove_if_empty(path)  # a killed run may have left an empty folder
