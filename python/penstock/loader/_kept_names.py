"""Reads and writes class names in the indexes of the files, so that the next loader does not look for them again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from penstock.datasets.dataset import Dataset
from penstock.datasets.lengths import are_kept
from penstock.errors import PenstockError
from penstock.framing.index import kept_classes
from penstock.framing.index.kept_classes import Names


def known(dataset: Dataset, column: str, path: str) -> dict[int, Names | None]:
    """The names of a column in each shard whose index has them."""
    found: dict[int, Names | None] = {}
    if not are_kept(dataset.files, column):
        return found
    files = dataset.files
    for shard, file in enumerate(dataset.paths):
        lists = kept_classes.of_file(file, files.storage, dataset.options, files.format_of)
        if path in lists:
            found[shard] = lists[path]
    return found


def keep(dataset: Dataset, column: str, path: str, found: Mapping[int, Names | None]) -> None:
    """Store the names of a column for each shard. If that fails, the next loader looks for them again."""
    if not are_kept(dataset.files, column):
        return
    files = dataset.files
    for shard, names in found.items():
        if files.info(shard).is_folder:
            continue
        check = partial(files.check_unchanged, shard)
        with suppress(PenstockError, OSError):
            reader, source = files.own(shard), files.source(shard)
            kept_classes.keep(source, reader, dataset.options.index, {path: names}, check)
