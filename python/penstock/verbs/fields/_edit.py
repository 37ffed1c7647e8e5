"""A change to the fields of every record, and its application to decoded records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.columns.batches import empty_batch
from penstock.columns.inferred import as_stored
from penstock.datasets.dataset import Dataset
from penstock.errors import SchemaError
from penstock.overlay.places import OverlayFolder
from penstock.verbs.fields._values import NewFields

_HUGGING_FACE = b"huggingface"
"""The key of what `datasets` keeps in the metadata of a schema: which columns are images, and the names of classes."""
REPLACE_HINT = "replace=True replaces the old values with the new values"


def facts_of_baking(folder: OverlayFolder | None) -> Any:
    """Return what identifies a job that bakes overlays. The overlays cannot, because they are removed meanwhile."""
    return ["bake", (), (), True, *([] if folder is None else [folder.path])]


@dataclass(frozen=True, slots=True)
class Edit:
    new: NewFields | None = None
    drop: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    replace: bool = False
    """Whether new fields replace old fields of the same name."""
    baking: Any = None
    """If the changes are those of overlays: what identifies this job, as `facts_of_baking` returns it."""

    def facts(self) -> Any:
        if self.baking is not None:
            return self.baking
        new = None if self.new is None else self.new.facts()
        return [new, self.drop, self.rename, self.replace]


@dataclass(frozen=True, slots=True)
class EditPart:
    """A shard to write: its position among the shards to write, and its number among all shards."""

    place: int
    shard: int


def edited(old: Dataset, part: EditPart, edit: Edit) -> Iterator[pa.RecordBatch]:
    """Yield the changed records of a shard, as at least one batch."""
    reader = old.files.reader(part.place)
    names = names_after(old.schema.names, edit)
    metadata = _metadata_after(as_stored(reader.schema).metadata or {}, edit)
    found = False
    for chunk in reader.chunks():
        batch = reader.decode(chunk, None, None)
        changed = _apply(batch, names, edit, part.shard, chunk.first_record)
        yield changed.replace_schema_metadata(metadata)
        found = True
    if not found:
        empty = empty_batch(old.schema)
        yield _apply(empty, names, edit, part.shard, 0).replace_schema_metadata(metadata)


def names_after(names: list[str], edit: Edit) -> dict[str, str]:
    """Return the old fields that stay, as {new name: old name}."""
    renamed = dict(edit.rename)
    after = {renamed.get(name, name): name for name in names if name not in edit.drop}
    if len(after) < len(names) - len(set(edit.drop)):
        raise SchemaError("two fields would have the same name")
    return after


def _metadata_after(metadata: Mapping[bytes, bytes], edit: Edit) -> dict[bytes, bytes]:
    """Return the metadata of a schema with the new names in the description of Hugging Face's features, which is left
    as it is if it is not as `datasets` writes it."""
    found, renamed = dict(metadata), dict(edit.rename)
    try:
        described = json.loads(found[_HUGGING_FACE])
        features = described["info"]["features"]
        described["info"]["features"] = {
            renamed.get(name, name): feature
            for name, feature in features.items()
            if name not in edit.drop
        }
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        return found
    return {**found, _HUGGING_FACE: json.dumps(described).encode()}


def _apply(
    batch: pa.RecordBatch, names: dict[str, str], edit: Edit, shard: int, first: int
) -> pa.RecordBatch:
    columns = {new: batch.column(batch.schema.get_field_index(old)) for new, old in names.items()}
    fields = {new: batch.schema.field(old).with_name(new) for new, old in names.items()}
    if edit.new is not None:
        old = batch.select(list(edit.new.reads)) if edit.new.reads else None
        added = edit.new.batch(shard, first, batch.num_rows, old)
        for field, column in zip(added.schema, added.columns, strict=True):
            columns[field.name], fields[field.name] = column, field
    return pa.RecordBatch.from_arrays(
        list(columns.values()), schema=pa.schema(list(fields.values()))
    )
