"""Schema metadata about the records from which the schema was inferred."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.columns.facts import parsed
from penstock.errors import FormatError

INFERRED_KEY = b"penstock.inferred_from"
EVERYWHERE_KEY = b"penstock.in_every_record"
_MOST_BYTES = 64 << 20
"""Size limit for the JSON list of EVERYWHERE_KEY."""
_WORDS = re.compile(r"(all|the first) (\d{1,18}) records of (.*)", re.DOTALL)
_NO_RECORDS = "no records"


@dataclass(frozen=True, slots=True)
class InferredFrom:
    """The records from which a schema was inferred: the first `num_records`, or all, of `place`, which is a file's name
    or the text of `files(n)`."""

    num_records: int
    is_all: bool = True
    place: str = ""

    def __str__(self) -> str:
        if not self.num_records:
            return _NO_RECORDS
        return f"{'all' if self.is_all else 'the first'} {self.num_records} records of {self.place}"

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """The entry for the metadata of a schema."""
        return {INFERRED_KEY: str(self).encode()}

    @classmethod
    def of(cls, schema: pa.Schema) -> InferredFrom | None:
        """Read the metadata of a schema. None if the caller gave the schema or the file stores it."""
        told = (schema.metadata or {}).get(INFERRED_KEY)
        if told is None:
            return None
        found = _WORDS.fullmatch(told.decode("utf-8", "replace"))
        return cls(int(found[2]), found[1] == "all", found[3]) if found else cls(0)


def file_name(path: str) -> str:
    """The name of a file for metadata. Bytes that are not UTF-8 are escaped."""
    return os.path.basename(path).encode("utf-8", "backslashreplace").decode()


def files(num_files: int) -> str:
    """The text for several files, used as `place`."""
    return f"{num_files} files"


def has_no_records(schema: pa.Schema) -> bool:
    """Whether a schema was inferred from files without records."""
    found = InferredFrom.of(schema)
    return found is not None and not found.num_records


def in_every_record(schema: pa.Schema) -> frozenset[str]:
    """Read from the metadata which scalar fields every examined record has. Empty if the metadata is missing or
    invalid."""
    try:
        names: Any = parsed((schema.metadata or {}).get(EVERYWHERE_KEY, b"[]"), _MOST_BYTES)
    except FormatError:
        return frozenset()
    if not isinstance(names, list):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str))


def as_stored(schema: pa.Schema) -> pa.Schema:
    """A schema that was read from a file, without metadata about the records from which it was once inferred."""
    metadata = dict(schema.metadata or {})
    if metadata.pop(INFERRED_KEY, None) is None:
        return schema
    return schema.with_metadata(metadata or None)
