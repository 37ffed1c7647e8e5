"""Fields of existing records: added, dropped, renamed, replaced, and overlays baked in.

The arguments are checked here; `rewrite` does the work, `new_fields` has the values, and `overlays` writes
an overlay.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.contract.format import Summary
from penstock.datasets.dataset import Dataset
from penstock.datasets.dataset import open as open_dataset
from penstock.engine.pipeline import checked_threads
from penstock.errors import SchemaError, UnsupportedError, not_local
from penstock.limits import limits_from
from penstock.overlay.file import find
from penstock.storage.local import LocalStorage
from penstock.storage.paths import index_option
from penstock.verbs.fields._beside import keep_beside, refuse_known
from penstock.verbs.fields._edit import Edit
from penstock.verbs.fields._job import Job
from penstock.verbs.fields._new_fields import Baked, new_fields
from penstock.verbs.fields._rewrite import journal_of_baking, rewrite
from penstock.verbs.fields.overlays import (
    identify,
    overlays,
    remove_empty_folder,
    remove_overlay,
)
from penstock.verbs.fields.rewrite_journal import Journal
from penstock.verbs.progress import Progress
from penstock.verbs.write.shards import Names

Path = str | os.PathLike[str]
_NAME_LENGTH = 60
"""Of an overlay that is called after its fields."""


def add_fields(
    source: Any,
    fields: Any,
    *,
    into: Path | None = None,
    in_place: bool = False,
    by: str | None = None,
    missing: str = "error",
    reads: Sequence[str] = (),
    name: str | None = None,
    replace: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    checksums: str = "all",
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Give existing records new fields.

    TFRecord records are spliced: the old payload is copied, not parsed, and its checksum extended over the
    new bytes. Other formats are read and written again. Records keep their order; each shard becomes one
    file, compressed as before.

    Call it again the same way after a kill: it continues, and ends with the same bytes. (A function is
    recognised by its name only.)

    Args:
        source: as for `open`, or a Dataset.
        fields: the new values, in one of these forms:

            * {name: array or list with a value for each record, or one value for all};
            * a table (pyarrow, pandas, polars, a penstock Dataset) or the path of one, with a row
              for each record, or, with `by`, a row for each key;
            * a function of a record batch with the columns `reads`, or {name: such a function}. It
              gives {name: array or value}, a table or a batch, and may be called from several
              threads at once (threads=1 prevents that), with as many records as a chunk has.

        into: where the new files go: a file for one shard; a folder for files of the same names;
            or a pattern with `{shard}`. Neither `into` nor `in_place` keeps the new fields beside
            the shards, as an overlay, and rewrites nothing.
        in_place: replace each shard when its new file is whole. Needs free space for the largest.
        by: a field of the records and a column of the table; rows go to the records with the same
            value. Integers, text or bytes. A key that comes twice in the table is an error.
        missing: for a record whose key is not in the table: "error", or "null" for no new fields.
        reads: the fields that a function gets. Nothing else is decoded.
        name: of an overlay, for `remove_overlay`; None joins the names of its fields by "+".
        replace: a new field may replace an old one of the same name, whose bytes are cut out; a record
            without a new value loses the old one. Without `replace` a field that exists is an error:
            in the schema for an overlay, in any record for a rewrite.
        overwrite: replace files that exist.
        verify: read each new file before it gets its name, and compare all old fields.
        checksums: "all" verifies each old payload; a damaged one is an error that names it.
            "headers" copies payloads unverified, so that damage can still be detected.
        index: write an index with each file; a path puts them in that folder.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.

    Returns:
        A Summary of the files that were written.

    Raises:
        SchemaError: a field exists and `replace` is False, values do not fit the format, or do not
            fit the records.
        ChecksumError: an old record is damaged.
        FileExistsError: a target exists and `overwrite` is False.
        OSError: the disk has no room, before anything is written.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
        >>> _ = ps.add_fields(
        ...     "numbers.tfrecord",
        ...     {"score": [0.5, 1.0, 1.5], "split": "train"},
        ...     into="scored.tfrecord",
        ...     overwrite=True,
        ... )
        >>> ps.open("scored.tfrecord")[1]
        {'id': 2, 'score': 1.0, 'split': 'train'}
        >>> def double(batch):
        ...     return {"twice": [2 * value.as_py() for value in batch["id"]]}
        >>> _ = ps.add_fields("numbers.tfrecord", double, reads=["id"], in_place=True)
        >>> ps.open("numbers.tfrecord")[2]
        {'id': 3, 'twice': 6}
    """
    dataset = _opened(source, checksums)
    unchanged = _unchanged(dataset) if in_place else None
    new = new_fields(dataset, fields, by=by, missing=missing, reads=reads, unchanged=unchanged)
    how = How(overwrite, verify, index, threads, progress)
    if into is not None or in_place:
        return _rewrite(dataset, Edit(new=new, replace=replace), into, in_place, how)
    called = name or "+".join(new.schema.names)[:_NAME_LENGTH]
    if not replace:
        refuse_known(dataset, new.schema.names, called)
    return keep_beside(dataset, new, called, overwrite, threads)


def drop_fields(
    source: Any,
    names: str | Iterable[str],
    *,
    into: Path | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Take fields out of existing records; everything else is copied as it is.

    Args:
        source: as for `open`, or a Dataset.
        names: one name, or several.
        into: as for `add_fields`.
        in_place: as for `add_fields`.
        overwrite: replace files that exist.
        verify: before a new file gets its name, check that the other fields are unchanged.
        index: write an index with each file; a folder puts them there.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.

    Returns:
        A Summary of the files that were written.

    Raises:
        SchemaError: there is no such field.
        ChecksumError: an old record is damaged.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2], "old": [3, 4]}, "two.tfrecord", overwrite=True)
        >>> _ = ps.drop_fields("two.tfrecord", "old", in_place=True)
        >>> ps.open("two.tfrecord").schema.names
        ['id']
    """
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not listed:
        raise ValueError("no names of fields to drop")
    edit = Edit(drop=listed)
    how = How(overwrite, verify, index, threads, progress)
    return _rewrite(_opened(source), edit, into, in_place, how)


def rename_fields(
    source: Any,
    names: Mapping[str, str],
    *,
    into: Path | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Give fields of existing records other names; everything else is copied as it is.

    Args:
        source: as for `open`, or a Dataset.
        names: {old name: new name}; two may change places.
        into: as for `add_fields`.
        in_place: as for `add_fields`.
        overwrite: replace files that exist.
        verify: before a new file gets its name, check that the values are unchanged.
        index: write an index with each file; a folder puts them there.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.

    Returns:
        A Summary of the files that were written.

    Raises:
        SchemaError: there is no such field, or one of the new name already.
        ChecksumError: an old record is damaged.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "two.tfrecord", overwrite=True)
        >>> _ = ps.rename_fields("two.tfrecord", {"id": "number"}, in_place=True)
        >>> ps.open("two.tfrecord").schema.names
        ['number']
    """
    dataset = _opened(source)
    if not names:
        raise ValueError("no names of fields to change")
    if len(set(names.values())) < len(names):
        raise SchemaError("two fields would have the same name")
    edit = Edit(rename=tuple(names.items()))
    how = How(overwrite, verify, index, threads, progress)
    return _rewrite(dataset, edit, into, in_place, how)


def replace_fields(
    source: Any,
    fields: Any,
    *,
    into: Path | None = None,
    in_place: bool = False,
    by: str | None = None,
    missing: str = "error",
    reads: Sequence[str] = (),
    overwrite: bool = False,
    verify: bool = False,
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Give fields of existing records other values; everything else is copied as it is.

    The old values are cut out of the record, so no reader meets both.

    Args:
        source: as for `open`, or a Dataset.
        fields: as for `add_fields`; each must be there already.
        into: as for `add_fields`; without `in_place` one of the two is needed.
        in_place: as for `add_fields`.
        by: as for `add_fields`.
        missing: as for `add_fields`; with "null" such a record loses the field.
        reads: as for `add_fields`.
        overwrite: replace files that exist.
        verify: before a new file gets its name, check that the other fields are unchanged.
        index: write an index with each file; a folder puts them there.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.

    Returns:
        A Summary of the files that were written.

    Raises:
        SchemaError: there is no such field, or the values do not fit.
        ChecksumError: an old record is damaged.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2], "label": [0, 0]}, "two.tfrecord", overwrite=True)
        >>> _ = ps.replace_fields("two.tfrecord", {"label": [7, 8]}, in_place=True)
        >>> ps.open("two.tfrecord")[1]["label"]
        8
    """
    dataset = _opened(source)
    unchanged = _unchanged(dataset) if in_place else None
    new = new_fields(dataset, fields, by=by, missing=missing, reads=reads, unchanged=unchanged)
    for name in new.schema.names:
        if not dataset.schema.get_all_field_indices(name):
            known = ", ".join(dataset.schema.names)
            raise SchemaError(
                f"no such field; there are: {known}",
                field=name,
                file=dataset.paths[0],
                hint="add_fields adds new ones",
            )
    edit = Edit(new=new, replace=True)
    how = How(overwrite, verify, index, threads, progress)
    return _rewrite(dataset, edit, into, in_place, how)


def bake_fields(
    source: Any,
    *,
    into: Path | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Put the fields that are kept beside the files into the records themselves.

    In place each shard's overlays are removed when its new file has replaced it.

    Args:
        source: as for `open`, or a Dataset.
        into: as for `add_fields`; the overlays stay where they are.
        in_place: as for `add_fields`.
        overwrite: replace files that exist.
        verify: before a new file gets its name, check that the other fields are unchanged.
        index: write an index with each file; a folder puts them there.
        threads: how many to use; None for all cores.
        progress: called with the records done, the bytes of the source done, and those in all.

    Returns:
        A Summary of the files that were written.

    Raises:
        ValueError: no fields are kept beside these files.
        ChecksumError: an old record is damaged.
        StaleIndexError: an overlay was made for another state of its file.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "two.tfrecord", overwrite=True)
        >>> _ = ps.add_fields("two.tfrecord", {"score": [0.5, 1.5]}, overwrite=True)
        >>> _ = ps.bake_fields("two.tfrecord", in_place=True)
        >>> ps.overlays("two.tfrecord"), ps.open("two.tfrecord")[1]
        ([], {'id': 2, 'score': 1.5})
    """
    bare = _bare(source)
    paths, left = bare.paths, list(range(len(bare.paths)))
    journal = journal_of_baking(paths)
    if in_place and journal.is_of_this_job():
        left = _left_to_bake(paths, journal)
    kept = overlays([paths[shard] for shard in left]) if left else []
    if not kept and len(left) == len(paths):
        raise ValueError(f"no fields are kept beside {paths[0]}")
    if not kept:
        journal.load()
        journal.forget()  # all was done but for this
        return Summary(paths, len(bare), sum(map(os.path.getsize, paths)))
    names = list(dict.fromkeys(name for overlay in kept for name in overlay.fields.names))
    # Shards that are baked already are not opened: their fields may have other types.
    shown = bare.reopened(source=[paths[shard] for shard in left], overlays=True)
    edit = Edit(new=Baked(shown, names, left), replace=True)
    how = How(overwrite, verify, index, threads, progress)
    published = (lambda shard: _remove_overlays(paths[shard])) if in_place else None
    return _rewrite(bare, edit, into, in_place, how, published)


def _bare(source: Any) -> Dataset:
    """The files without their overlays."""
    if isinstance(source, Dataset):
        return source.reopened(columns=None, overlays=False)
    return open_dataset(source, overlays=False)


def _left_to_bake(paths: tuple[str, ...], journal: Journal) -> list[int]:
    """The shards that a killed bake has not written. It may have left overlays beside others."""
    written = journal.written()
    for shard in written:
        _remove_baked(paths[shard])
        remove_empty_folder(paths[shard])  # of whose overlays the last was removed, and no more
    if written and overlays([paths[shard] for shard in written]):
        journal.forget()  # they were made since then, so that all of it is to be baked
        written = []
    return [shard for shard in range(len(paths)) if shard not in written]


def _remove_overlays(path: str) -> None:
    for overlay in overlays(path):
        remove_overlay(path, overlay.name)


def _remove_baked(path: str) -> None:
    """Remove the overlays of what a file was before it was replaced."""
    state = identify(open_dataset(path, overlays=False), 0)
    for overlay in find(path, LocalStorage(), limits_from(None)):
        if not state.fits(overlay.identity):
            remove_overlay(path, overlay.name)


def _unchanged(dataset: Dataset) -> Dataset | None:
    """The files that an unfinished job in place has not changed yet, if it has changed others."""
    written = Journal(dataset.paths, dataset.paths, None, in_place=True).written()
    left = [path for shard, path in enumerate(dataset.paths) if shard not in written]
    return dataset.reopened(source=left, columns=None) if written and left else None


def _opened(source: Any, checksums: str = "all") -> Dataset:
    if isinstance(source, Dataset):
        return source
    return open_dataset(source, checksums=checksums)


@dataclass(frozen=True, slots=True)
class How:
    """The options of all rewriting verbs."""

    overwrite: bool
    verify: bool
    index: bool | str
    threads: int | None
    progress: Progress | None


def _rewrite(
    dataset: Dataset,
    edit: Edit,
    into: Path | None,
    in_place: bool,
    how: How,
    published: Callable[[int], None] | None = None,
) -> Summary:
    if (into is None) == (not in_place):
        raise ValueError("say where the new records go: into= a new place, or in_place=True")
    if dataset.files.has_overlays and not isinstance(edit.new, Baked):
        raise UnsupportedError(
            "fields are kept beside these files, and would be lost",
            file=dataset.paths[0],
            hint="penstock fields bake --in-place SOURCE, or open(..., overlays=False) to leave them behind",
        )
    targets = dataset.paths if into is None else _targets(dataset.paths, os.fspath(into))
    index, threads = index_option(how.index), checked_threads(how.threads)
    options = (how.overwrite, how.verify, index, threads, how.progress)
    job = Job(dataset, targets, edit, in_place, *options)
    return rewrite(job if published is None else dataclasses.replace(job, published=published))


def _targets(paths: tuple[str, ...], into: str) -> tuple[str, ...]:
    """The new file of each shard."""
    if "://" in into:
        raise not_local(into)
    is_folder = into.endswith(("/", os.sep)) or os.path.isdir(into)
    if not is_folder and (len(paths) == 1 or "{shard" in into):
        names = Names(into, (), len(paths) > 1, len(paths))
        return tuple(names.final(number, len(paths)) for number in range(len(paths)))
    return tuple(os.path.join(into, os.path.basename(path)) for path in paths)
