"""Changes stored as an overlay, in files next to the shards. New values are computed shard by shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.engine.cluster import Machines
from penstock.errors import SchemaError, UnsupportedError
from penstock.overlay.overlays import Overlays
from penstock.overlay.places import removal
from penstock.overlay.view import Changes
from penstock.verbs.fields._job import check_changes
from penstock.verbs.fields._on_machines import check_on, computed_on
from penstock.verbs.fields._unfinished import Unfinished
from penstock.verbs.fields._values import NewFields, check_all, columns_of
from penstock.verbs.fields.overlays import overlays, write_overlay

_NAME_LENGTH = 60
"""The maximum length of an overlay name made from its fields."""


def name_of_added(dataset: Dataset, names: list[str]) -> str:
    """Return the name of an overlay with new fields: their names. If an overlay has this name, but later overlays
    dropped, renamed or replaced its fields, a number follows."""
    plain = "+".join(names)[:_NAME_LENGTH]
    shown = _overlays_of(dataset)
    if all(shown.is_from(plain, name) for name in names):
        return plain  # the same overlay again
    return _free_name(dataset, plain)


def _free_name(dataset: Dataset, plain: str) -> str:
    # Names differ over all places, so that a list of them is plain.
    taken = {overlay.name for overlay in overlays(dataset)}
    numbered = (f"{plain}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (plain, *numbered) if name not in taken)


def _overlays_of(dataset: Dataset) -> Overlays:
    return Overlays(dataset.paths, dataset.files.overlay_places, dataset.options.limits)


def refuse_known(dataset: Dataset, names: list[str], overlay: str) -> None:
    """Raise SchemaError if the records or another overlay already have one of the fields."""
    known = _overlays_of(dataset).names(_own_names(dataset), but=overlay)
    for field in names:
        if field in known:
            raise SchemaError(
                "the records already have this field",
                field=field,
                file=dataset.paths[0],
                hint="replace=True shows the new values instead of the old values",
            )


def _own_names(dataset: Dataset) -> list[str]:
    """Return the names of the fields in the files."""
    options = dataset.options
    is_plain = options.schema is None and not options.raw and dataset.files.overlays is None
    if is_plain and dataset.columns is None:
        return dataset.schema.names
    return dataset.reopened(columns=None, overlays=False, schema=None, raw=False).schema.names


def replace_beside(
    dataset: Dataset, new: NewFields, threads: int | None, on: Machines | None = None
) -> Summary:
    """Store new values of existing fields next to the shards."""
    made = overlays(dataset)
    if made and made[-1].num_shards > len(made[-1].shards):
        again = sorted({*made[-1].fields.names} & {*new.reads})
        if again:
            remove = removal("SOURCE", made[-1].name, made[-1].folder)
            # A call that was interrupted would compute some of the values a second time.
            raise UnsupportedError(
                f"the new values are computed from fields of the overlay {made[-1].name!r}, which "
                f"{len(made[-1].shards)} of {made[-1].num_shards} files have",
                file=made[-1].shards[0],
                hint=f"if a call was interrupted, {remove}, then call again; otherwise change the files "
                "with it and those without it in separate calls",
            )
    name = _free_name(dataset, "+".join(new.schema.names)[:_NAME_LENGTH])
    return keep_beside(dataset, new, name, False, threads, on)


def change_beside(dataset: Dataset, changes: Changes) -> Summary:
    """Drop and rename fields in an overlay, without values."""
    check_changes(changes.drop, changes.rename, dataset.schema.names, dataset.paths[0])
    names = [*changes.drop, *changes.rename]
    plain = f"{'drop' if changes.drop else 'rename'}-{'+'.join(names)}"[:_NAME_LENGTH]
    name = _free_name(dataset, plain)
    return write_overlay(dataset, name, pa.schema([]), lambda shard: (), changes=changes)


def keep_beside(
    dataset: Dataset,
    new: NewFields,
    name: str,
    overwrite: bool,
    threads: int | None,
    on: Machines | None = None,
) -> Summary:
    every = range(len(dataset.paths))
    if on is None:
        check_all(new, dataset, every, threads)
    else:
        check_on(on, new, dataset, every)
    with Unfinished(dataset, name, new, overwrite=overwrite) as unfinished:
        if on is None:

            def here(shard: int) -> Iterator[pa.RecordBatch]:
                return unfinished.values(shard, columns_of(dataset, shard, new, threads))

            return write_overlay(dataset, name, new.schema, here, overwrite=overwrite)
        todo, made = unfinished.missing(), dict[int, list[pa.RecordBatch]]()

        def computed() -> Iterator[int]:
            yield from sorted({*every} - {*todo})
            for shard, batches in computed_on(on, dataset, new, todo):
                made[shard] = batches
                yield shard

        def there(shard: int) -> Iterator[pa.RecordBatch]:
            return unfinished.values(shard, made.pop(shard, ()))

        how: dict[str, Any] = {"overwrite": overwrite, "shards": computed()}
        return write_overlay(dataset, name, new.schema, there, **how)
