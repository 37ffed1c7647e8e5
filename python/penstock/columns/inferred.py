"""Which records a schema was inferred from, as its metadata records it."""

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
"""JSON list of the scalar fields that every record looked at has."""
_WORDS = re.compile(r"(all|the first) (\d{1,18}) records of (.*)", re.DOTALL)
_NO_RECORDS = "no records"


@dataclass(frozen=True, slots=True)
class InferredFrom:
    """The first records of `place` (a file, or `files(n)`), or all of its records."""

    num_records: int
    is_all: bool = True
    place: str = ""

    def __str__(self) -> str:
        if not self.num_records:
            return _NO_RECORDS
        return f"{'all' if self.is_all else 'the first'} {self.num_records} records of {self.place}"

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """What it adds to the metadata of a schema."""
        return {INFERRED_KEY: str(self).encode()}

    @classmethod
    def of(cls, schema: pa.Schema) -> InferredFrom | None:
        """What a schema says; None for a schema that was given, or that the file stores."""
        told = (schema.metadata or {}).get(INFERRED_KEY)
        if told is None:
            return None
        found = _WORDS.fullmatch(told.decode("utf-8", "replace"))
        return cls(int(found[2]), found[1] == "all", found[3]) if found else cls(0)


def file_name(path: str) -> str:
    """The name of a file as text, for metadata: the bytes of one may be no UTF-8."""
    return os.path.basename(path).encode("utf-8", "backslashreplace").decode()


def files(num_files: int) -> str:
    """Several files as a place."""
    return f"{num_files} files"


def has_no_records(schema: pa.Schema) -> bool:
    """Whether a schema was to be inferred where there was nothing to infer it from."""
    found = InferredFrom.of(schema)
    return found is not None and not found.num_records


def in_every_record(schema: pa.Schema) -> frozenset[str]:
    """The scalar fields that every record looked at has; none where the metadata is not as it should be."""
    try:
        names: Any = parsed((schema.metadata or {}).get(EVERYWHERE_KEY, b"[]"), _MOST_BYTES)
    except FormatError:
        return frozenset()
    if not isinstance(names, list):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str))


def as_stored(schema: pa.Schema) -> pa.Schema:
    """The schema that a file stores, without what it may still say about the records that it was
    once inferred from."""
    metadata = dict(schema.metadata or {})
    if metadata.pop(INFERRED_KEY, None) is None:
        return schema
    return schema.with_metadata(metadata or None)
