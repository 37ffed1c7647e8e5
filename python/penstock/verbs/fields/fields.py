"""Changes to the fields of existing records: add, drop, rename and replace.

The arguments are checked here. `_change` chooses how files are written, `_new_fields` provides the values, and
`overlays` writes overlays. `bake` writes the values of overlays into records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock import describe
from penstock.conditions import Where
from penstock.contract.summary import Summary
from penstock.datasets.dataset import Dataset
from penstock.engine.cluster import machines_of
from penstock.errors import SchemaError
from penstock.overlay.view import Changes
from penstock.storage.base import Storage
from penstock.verbs.fields._beside import (
    change_beside,
    keep_beside,
    name_of_added,
    refuse_known,
    replace_beside,
)
from penstock.verbs.fields._change import (
    How,
    Path,
    left_of_job,
    noted,
    opened_whole,
    rewritten,
    with_overlays,
)
from penstock.verbs.fields._edit import Edit
from penstock.verbs.fields._inside import with_inside
from penstock.verbs.fields._new_fields import changed_note, new_fields
from penstock.verbs.fields._old_types import with_old_types
from penstock.verbs.fields._only_where import OnlyMatched, OnlyWhere
from penstock.verbs.fields._values import NewFields, is_csv
from penstock.verbs.progress import Progress


def add_fields(
    source: Any,
    fields: Any,
    *,
    into: Path | None = None,
    in_place: bool = False,
    by: str | Mapping[str, str] | None = None,
    missing: str = "error",
    reads: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    name: str | None = None,
    replace: bool = False,
    overlays: Path | None = None,
    overwrite: bool = False,
    verify: bool = False,
    checksums: str = "all",
    index: bool | str = True,
    threads: int | None = None,
    progress: Progress | None = None,
    on: Any = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> Summary:
    """Give existing records new fields.

    TFRecord records are spliced: the old payload is copied, not parsed, and its checksum is extended over the new
    bytes. Other formats are read and written again. Records keep their order. Each shard becomes one file with the
    same compression.

    After a kill, the same call continues the job, and the result has the same bytes. (A function is recognised by its
    name and code; a changed one is refused.) An overlay of values that a function computes continues, too.

    Args:
        source: as for `open`, or a Dataset.
        fields: the new values, in one of these forms:

            * {name: array or list with a value for each record, or one value for all};
            * a table (pyarrow, pandas, polars, a penstock Dataset) or the path of one, with a row
              for each record, or, with `by`, a row for each key;
            * a function of a record batch with the columns `reads`, or {name: such a function}. It
              returns {name: array or value}, a table or a batch. It gets one chunk of records at a time.
              Several threads may call it at the same time; threads=1 prevents that.

        into: the target of the new files: a file for one shard; a folder for files of the same names; or a pattern
            with `{shard}`. Without `into` and `in_place`, the new fields are stored in files next to the shards, as
            an overlay, and nothing is rewritten.
        in_place: replace each shard when its new file is complete. Needs free space for the largest shard. Objects in
            a store cannot be changed in place.
        by: the name of both a field of the records and a column of the table, or {field: column} if the names differ.
            Each record gets the row with the same value: an integer, text or bytes. A key that occurs twice in the
            table is an error.
        missing: what happens to a record whose key is not in the table: "error" raises an error, "null" adds no fields.
        reads: the fields that are passed to a function. No other field is decoded.
        columns: the columns of a table to use, besides `by`; None for all.
        overlays: a folder for the overlay, such as `my-overlays/`, for files next to which the caller may not write; it is
            made if it is missing. Pass the same folder to `open` and to every other verb of these files. None stores
            the overlay next to the files.
        name: the overlay's name, for `remove_overlay`; None joins the names of its fields by "+".
        replace: a new field may replace an old field of the same name. The old bytes are removed, even from records
            without a new value. Without `replace` an existing field is an error: a field in the schema for an
            overlay, a field in any record for a rewrite.
        verify: before a new file gets its name, read it and compare all old fields. An object in a store is read when
            it has its name, and removed if it differs.
        checksums: "all" verifies each old payload; the error for a damaged payload names its record.
            "headers" copies payloads and their checksums unverified, so that damage can be detected later.
        index: write an index with each file; a path is the folder for the indexes.
        threads: the number of threads; None for all cores.
        progress: called with the records done, the source bytes done, and the total source bytes.
        on: where the shards are changed: "ray", "ray://host:port" or a penstock.ray.Cluster; a shard is a task
            (docs/guide/ray.md). None for the threads of this process. The bytes are the same. The values of an overlay are
            computed there, and written by this process.
        storage, storage_options: where the source is, as for `open`.
        target_storage, target_storage_options: where the new files are. None for this machine, and for names such as
            s3://bucket/key, whose client takes its options from the environment.

    Returns:
        A Summary of the files that were written.

    Raises:
        SchemaError: a field exists and `replace` is False, or values do not fit the format or the records.
        ChecksumError: an old record is damaged.
        FileExistsError: a target exists and `overwrite` is False.
        PermissionError: nothing can be written next to the files.
        OSError: the disk has no room. Nothing was written.

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
    if missing == "keep":
        raise ValueError('missing="keep" is for replace_fields: added fields have no old values')
    is_beside = into is None and not in_place
    dataset = opened_whole(
        source, storage, storage_options, overlays, checksums, is_beside=is_beside
    )
    unchanged = left_of_job(dataset) if in_place else None
    new = new_fields(
        dataset, fields, by=by, missing=missing, reads=reads, columns=columns, unchanged=unchanged
    )
    if replace:
        new = with_old_types(unchanged or dataset, new)
    notes = new.notes(dataset, threads)
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
    if not is_beside:
        made = rewritten(dataset, Edit(new=new, replace=replace), into, in_place, how)
        return noted(made, notes)
    called = name or name_of_added(dataset, new.schema.names)
    if not replace:
        refuse_known(dataset, new.schema.names, called)
    return noted(keep_beside(dataset, new, called, overwrite, threads, machines), notes)


def drop_fields(
    source: Any,
    names: str | Iterable[str],
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
    """Remove fields from existing records. Everything else is copied unchanged.

    Without `into` and `in_place` the change is stored next to the shards, as an overlay, and nothing is rewritten. The
    other arguments are as for `add_fields`.

    Args:
        source: as for `open`, or a Dataset.
        names: one field name or several.

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
        raise ValueError("no field names to drop")
    is_beside = into is None and not in_place
    dataset = opened_whole(source, storage, storage_options, overlays, is_beside=is_beside)
    if is_beside:
        return change_beside(with_overlays(dataset), Changes(drop=listed))
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
    return rewritten(dataset, Edit(drop=listed), into, in_place, how)


def rename_fields(
    source: Any,
    names: Mapping[str, str],
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
    """Rename fields of existing records. Everything else is copied unchanged.

    Without `into` and `in_place` the change is stored next to the shards, as an overlay, and nothing is rewritten. The
    other arguments are as for `add_fields`.

    Args:
        source: as for `open`, or a Dataset.
        names: {old name: new name}; two fields may swap names.

    Raises:
        SchemaError: there is no such field, or another field already has the new name.
        ChecksumError: an old record is damaged.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [1, 2]}, "two.tfrecord", overwrite=True)
        >>> _ = ps.rename_fields("two.tfrecord", {"id": "number"}, in_place=True)
        >>> ps.open("two.tfrecord").schema.names
        ['number']
    """
    is_beside = into is None and not in_place
    dataset = opened_whole(source, storage, storage_options, overlays, is_beside=is_beside)
    if not names:
        raise ValueError("no fields to rename")
    if len(set(names.values())) < len(names):
        raise SchemaError("two fields would have the same name")
    if is_beside:
        return change_beside(with_overlays(dataset), Changes(rename=dict(names)))
    edit = Edit(rename=tuple(names.items()))
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
    return rewritten(dataset, edit, into, in_place, how)


# Complexity: one branch for each option.
def replace_fields(
    source: Any,
    fields: Any,
    *,
    into: Path | None = None,
    in_place: bool = False,
    by: str | Mapping[str, str] | None = None,
    missing: str = "error",
    reads: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    where: Where | None = None,
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
    """Replace the values of fields in existing records. Everything else is copied unchanged.

    With `into` or `in_place` the old values are removed from the records, so every reader finds only the new values.
    Without them the new values are stored next to the shards, as an overlay, and nothing is rewritten. The other
    arguments are as for `add_fields`.

    Args:
        source: as for `open`, or a Dataset.
        fields: as for `add_fields`; the records must already have each of the fields. The name `json.cls` is the key
            `cls` in the JSON of the field `json`, or the field `cls` of a struct: only this value changes, and the
            rest of a text stays as it is written. JSON without the key gets it. Texts for a field of JSON must be JSON.
        missing: for a record whose key is not in the table: "error", "keep" for its old values, or "null" for none:
            it loses the field. The same holds for an empty cell of a CSV file.
        where: replace values only in the records for which this condition is true; the others keep theirs. A text, an
            expression or a function, as for `convert`. A function in `fields` is then called only for these records,
            and a table needs rows only for them.

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
    machines = None if on is None else machines_of(on)
    is_beside = into is None and not in_place
    dataset = opened_whole(source, storage, storage_options, overlays, is_beside=is_beside)
    if is_beside:
        dataset = with_overlays(dataset)
    unchanged = old = left_of_job(dataset) if in_place else None
    if where is not None:
        unchanged = (unchanged or dataset).filter(where)
    new = new_fields(
        dataset, fields, by=by, missing=missing, reads=reads, columns=columns, unchanged=unchanged
    )
    new = with_inside(old or dataset, new, keeps=is_csv(fields) and missing == "keep")
    _refuse_unknown(dataset, new)
    new = with_old_types(old or dataset, new)
    if is_csv(fields) and missing == "error":
        _refuse_empty_cells(new, os.fspath(fields))
    notes = _notes(dataset, old, new, where, threads)
    if missing == "keep":
        new = OnlyMatched(dataset, new, keeps=is_csv(fields))
    if where is not None:
        new = OnlyWhere(dataset, new, where)
    if is_beside:
        return noted(replace_beside(dataset, new, threads, machines), notes)
    edit = Edit(new=new, replace=True)
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
    return noted(rewritten(dataset, edit, into, in_place, how), notes)


def _notes(
    dataset: Dataset, left: Dataset | None, new: NewFields, where: Where | None, threads: int | None
) -> Any:
    """Return notes on how many records get new values, if not all do. This reads the fields that decide it. `left` has
    the files that an unfinished job in place has not changed: of the others it is not known what a condition chose."""
    if where is None:
        return new.notes(dataset, threads)
    if left is not None:
        files = f"{describe.count(len(left.paths))} of {describe.count(len(dataset.paths))} files"
        count = changed_note(len(left.filter(where)), len(left))
        return (f"{count}, in the {files} that an earlier call had left",)
    chosen = dataset.filter(where)
    return new.notes(chosen, threads) or (changed_note(len(chosen), len(dataset)),)


def _refuse_unknown(dataset: Dataset, new: NewFields) -> None:
    known = dataset.schema.names
    for name in new.schema.names:
        if dataset.schema.get_all_field_indices(name):
            continue
        hint = "columns= with the columns of the table to use; add_fields adds new fields"
        if (column := name.split(".")[0]) in known:
            hint = f'open(..., types={{{column!r}: "json"}}), if it has texts of JSON; a struct has no other fields'
        message = f"no such field; there are: {', '.join(known)}"
        raise SchemaError(message, field=name, file=dataset.paths[0], hint=hint)


def _refuse_empty_cells(new: NewFields, path: str) -> None:
    for name in new.emptied():
        raise SchemaError(
            "the CSV has an empty cell in this column",
            field=name,
            file=path,
            hint='missing="keep" leaves the old value of such a record, missing="null" removes it',
        )
