"""What a dataset shows instead of the records of its files, such as some of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from penstock.datasets.files import Files
from penstock.storage.base import Source


class View(ABC):
    """Other records, made from those of some files."""

    keeps_columns: bool = True
    """Whether its records have the columns of the files."""

    keeps_records: bool = True
    """Whether each of its records is a record of the files."""

    @abstractmethod
    def files(self, base: Files) -> ViewFiles:
        """Return the files with the records of the view."""
        ...

    @abstractmethod
    def fixed(self, base: Files) -> View:
        """Return a view that makes the same records from the same files, however these are opened."""
        ...

    def schema_of_files(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema of the view's columns with the names that they have in the files."""
        return schema


class ViewFiles(Files):
    """Files with the records of a view. They share open files and caches with the files that they are made of."""

    def __init__(self, base: Files, view: View) -> None:
        vars(self).update(vars(base))
        self.base = base
        self.view: Any = view
        self._firsts = None
        self.uncounted = []
        self.listed = None

    @property
    def is_view(self) -> bool:
        return True

    def all_read(self) -> None:
        self.base.all_read()

    def _source_of(self, shard: int) -> Source:
        return self.base._source_of(shard)

    def complete(self, *, is_found: bool = False) -> Files:
        return self.view.files(self.base.complete(is_found=is_found))
