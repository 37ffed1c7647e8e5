"""Number appended class labels as the files do, so that existing names keep their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.columns.kept_names import Renumbered, is_label, names_of
from penstock.contract.format import Format, Options
from penstock.framing.index import kept_schema
from penstock.storage.base import Storage
from penstock.verbs.write.incoming import Incoming


def numbered_alike(
    incoming: Incoming, kind: Format, paths: Sequence[str], storage: Storage, kept_at: str
) -> Incoming:
    """Return the records with class labels numbered as in the files, if sidecars list the names of the labels.

    `kept_at` is the place of the sidecars, in the form of `Options.index`.
    """
    if kind.class_numbers is None:
        return incoming
    kept = kept_schema.of_files(paths, storage, Options(index=kept_at), lambda source: kind)
    ways: dict[int, Renumbered] = {}
    for place, field in enumerate(incoming.schema):
        at = -1 if kept is None else kept.get_field_index(field.name)
        if kept is None or at < 0 or not is_label(field.type):
            continue
        names = names_of(kept.field(at))
        if names is not None:
            ways[place] = Renumbered(names, kept.field(at).type)
    if not ways:
        return incoming
    fields = [
        f.with_type(ways[place].type) if place in ways else f
        for place, f in enumerate(incoming.schema)
    ]
    schema = pa.schema(fields, incoming.schema.metadata)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in incoming.batches:
            columns = [ways[n](c) if n in ways else c for n, c in enumerate(batch.columns)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Incoming(schema, batches(), incoming.num_records)
