"""Finds files whose fields differ from those of the other files."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.contract.format import Options, Reader
from penstock.contract.left_out import warns_first
from penstock.datasets._one_set import OF_EVERY_RECORD, fields_of, refuse_disjoint
from penstock.errors import SchemaError
from penstock.storage.base import Storage


class _Files(Protocol):
    """What is asked of `Files` here."""

    paths: Sequence[str]
    storage: Storage
    options: Options

    @property
    def found_types(self) -> str: ...
    @property
    def names_in_files(self) -> list[str]: ...
    def names_alone(self, shard: int, *, only_stored: bool = False) -> list[str]: ...
    def is_added(self, column: str) -> bool: ...
    def own(self, shard: int) -> Reader: ...


class FieldChecks:
    """Which files of a dataset need no more checks of their fields."""

    def __init__(self, alike: set[int], whole: set[int] | None = None) -> None:
        self.alike = alike
        """Files that have fields of the dataset."""
        self.whole = copy.copy(alike) if whole is None else whole
        """Files of which no stored column is left out."""
        self.looked_at = copy.copy(alike)
        """The same, or there was a warning."""

    def of_batch(self, files: _Files, shard: int, batch: pa.RecordBatch, *, whole: bool) -> None:
        """See Files.check_fields."""
        if whole and shard not in self.looked_at:
            self.looked_at.add(shard)
            _warn_of_left_out(files, shard)
        if shard in self.alike or not batch.num_rows:
            return
        self.alike.add(shard)
        has_own = False
        for number, column in enumerate(batch.columns):
            name = batch.schema.field(number).name
            if name not in OF_EVERY_RECORD and not files.is_added(name):
                has_own = True
                if column.null_count < batch.num_rows:
                    return
        if has_own:
            refuse_other_fields(files, shard, files.names_in_files)

    def of_stored(self, files: _Files, shard: int) -> None:
        """See Files.check_whole."""
        if shard in self.whole:
            return
        if files.found_types == "stored":
            names = files.names_alone(shard, only_stored=True)
            _refuse_left_out(files.paths[shard], names, files.names_in_files)
        self.whole.add(shard)


def refuse_other_fields(files: _Files, shard: int, known: Sequence[str]) -> None:
    """Raise SchemaError if a file has fields, and none of them are known."""
    names = files.names_alone(shard)
    if not names or set(names) & set(known).difference(OF_EVERY_RECORD):
        return
    refuse_disjoint(fields_of(files.paths, files.names_alone), files.storage)
    raise SchemaError(
        "the file has none of the fields of the other files",
        file=files.paths[shard],
        expected=", ".join(known[:5]),
        found=", ".join(names[:5]),
        hint="open(..., schema=...) with the fields of all files, or open each kind of file separately",
    )


def _refuse_left_out(path: str, names: Sequence[str], others: Sequence[str]) -> None:
    """Raise SchemaError if a file stores fields that the dataset does not have, so that they would be lost."""
    known = set(others)
    found = [name for name in names if name not in known]
    if found:
        raise SchemaError(
            "the file has this column, but the first file does not, so it would be lost",
            file=path,
            field=found[0],
            expected=", ".join(others[:5]),
            found=", ".join(names[:5]),
            hint='open(..., infer_records="all") for the columns of all files, or name the columns to keep with columns=',
        )


def _warn_of_left_out(files: _Files, shard: int) -> None:
    """Warn, once for a column of the dataset, that it is left out because the first file does not have it."""
    known, origin = set(files.names_in_files), files.options.origin
    others = [name for name in files.own(shard).stored_names if name not in known]
    found = [name for name in others if warns_first(origin, name)]
    if found:
        columns = f"column{'s' * (len(found) > 1)} {', '.join(map(repr, found))}"
        warnings.warn(
            f"{files.paths[shard]}: the file has the {columns}, which {'are' if len(found) > 1 else 'is'} left out,"
            " because the first file has no such column;"
            f' open(..., infer_records="all") reads {"them" if len(found) > 1 else "it"}',
            stacklevel=2,
        )
