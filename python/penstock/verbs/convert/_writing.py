"""Writes one part of a conversion, and compares it with what was read."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.columns.decimals import Decimals
from penstock.contract.format import Format
from penstock.contract.summary import Summary
from penstock.datasets.open import open as open_dataset
from penstock.errors import FormatError, PenstockError, known_as
from penstock.payloads.example.plans import is_raw
from penstock.storage.base import Storage
from penstock.storage.journal import Made
from penstock.verbs.convert._reading import Records
from penstock.verbs.convert.parts import OutputFile
from penstock.verbs.convert.store_journal import Entry
from penstock.verbs.progress import Meter
from penstock.verbs.write.incoming import Incoming
from penstock.verbs.write.write import write


@dataclass(frozen=True, slots=True)
class Writing:
    kind: Format
    options: Any
    format_options: dict[str, Any]
    index: bool | str
    threads: int | None
    exact: bool = False

    def file(
        self, reading: Records, batches: Iterator[pa.RecordBatch], path: str, **more: Any
    ) -> Summary:
        """Write batches of `reading`. The notes include those on the changes that it made."""
        made = write(
            Incoming(reading.schema, batches, None, reading.kept),
            path,
            format=self.kind.info.name,
            compression=getattr(self.options, "compression", None),
            index=self.index,
            threads=self.threads,
            exact=self.exact,
            **more,
            **{k: v for k, v in self.format_options.items() if k not in ("compression", "exact")},
        )
        advice = self.kind.advice(_stored(self.kind, reading.schema))
        return replace(made, notes=(*made.notes, *reading.notes, *advice))


def _stored(kind: Format, schema: pa.Schema) -> pa.Schema:
    """The schema with the types that `write` stores instead of decimals."""
    return schema if kind.info.holds_decimals else Decimals(schema, exact=False).schema


class PartJob(NamedTuple):
    """A part, where it is written, and the storage with the permissions of the new file."""

    part: OutputFile
    path: str
    storage: Storage


@contextmanager
def _numbered_from(first: int) -> Generator[None]:
    """Count the record of a writer's error, which names no file, from the beginning of the conversion and not of its
    part. Errors of readers name the record in its file."""
    try:
        yield
    except PenstockError as error:
        if error.record is not None and error.file is None:
            error.record += first
        raise


def write_part(job: PartJob, reading: Records, writing: Writing, meter: Meter) -> Summary:
    """Write a part under its temporary name."""
    part = job.part
    batches = meter.watch(reading.batches(part.first, part.last, lend=True))
    try:
        with _numbered_from(part.first):
            return writing.file(reading, batches, job.path, overwrite=True, storage=job.storage)
    except (PenstockError, OSError) as error:
        known_as(error, job.path.__eq__, part.final)
        raise


def write_in_store(
    job: PartJob,
    entry: Entry,
    reading: Records,
    writing: Writing,
    meter: Meter,
    *,
    prove: bool,
    overwrite: bool,
) -> Made:
    """Write a part under its final name, and note in its entry of the journal that it is finished."""
    part, path, storage = job
    batches = meter.watch(reading.batches(part.first, part.last, lend=True))
    with entry.writing(overwrite=overwrite) as may_replace, _numbered_from(part.first):
        summary = writing.file(reading, batches, path, overwrite=may_replace, storage=storage)
    state = storage.state(path)
    if prove:
        try:
            prove_part(job, reading, writing)
        except FormatError:
            if storage.state(path) == state:  # else it is somebody else's
                storage.remove(path)
            raise
    made = Made(state, summary.num_bytes, notes=summary.notes)
    entry.finish(made)
    return made


def prove_part(job: PartJob, reading: Records, writing: Writing) -> None:
    """Raise FormatError if the file does not have the values that were read."""
    part = job.part
    # Imported here, because pyarrow.compute takes long to import.
    from penstock.verbs.convert.proof import Wire, as_stored, prove_equal

    info, payload = writing.kind.info, getattr(writing.options, "payload", "")
    wanted, schema = reading.batches(part.first, part.last), reading.schema
    if not info.holds_decimals and (decimals := Decimals(schema, exact=False)):
        wanted, schema = decimals.convert(wanted), decimals.schema
    how: dict[str, Any] = {"format": info.name, "index": "never", "storage": job.storage}
    if info.holds_examples:
        wire = Wire(schema, payload or None)
        wanted = map(wire.convert, wanted)
        how |= {"raw": True} if wire.is_raw else {"schema": wire.schema}
    elif is_raw(reading.schema) and payload in (None, "raw"):
        how["raw"] = True
    added = set(info.added_columns) & set(reading.schema.names)
    if added:
        wanted = (batch.drop_columns(list(added)) for batch in wanted)
    if "infer_records" in {field.name for field in fields(writing.kind.read_options)}:
        how["infer_records"] = "all"
    found = open_dataset(job.path, **how)
    if not info.lossless and "schema" not in how:
        wanted = map(partial(as_stored, schema=found.schema), wanted)
    prove_equal(wanted, found.scan(), part.final, part.first)
