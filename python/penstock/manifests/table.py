"""The table of a manifest: its columns, and the facts in its footer. Everything in the file is a claim and is checked.

| column | type | meaning |
|---|---|---|
| `path` | string | relative to the manifest's folder if the shard is in it or below, else as it was named |
| `format` | string | the name of its format |
| `bytes` | int64 | its size |
| `records` | int64 | its records |
| `first_record` | int64 | the number of its first record in the dataset |
| `etag` `version` | string | the state of an object, as its store names it |
| `modified_ns` | int64 | when it was last written, in nanoseconds since 1970 |
| `checksum` | uint32 | the CRC-32C of the checksums of its records; 0 without an index |
| `index` | string | its index, if that is beside it; a path like `path` |
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.columns.facts import Facts, is_count, is_path, parsed_object
from penstock.columns.numbers import as_numpy
from penstock.columns.stored_schema import schema_of
from penstock.columns.types import own_types
from penstock.errors import FormatError, UnsupportedError, shown
from penstock.storage.urls import is_url, is_web, split_url

GROUP_SHARDS = 1 << 14
"""The shards of a row group."""
_MOST_GROUP_SHARDS = 1 << 20
VERSION = 1
_MOST_RECORDS = 1 << 62
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), False),
        pa.field("format", pa.string(), False),
        pa.field("bytes", pa.int64(), False),
        pa.field("records", pa.int64(), False),
        pa.field("first_record", pa.int64(), False),
        pa.field("etag", pa.string()),
        pa.field("version", pa.string()),
        pa.field("modified_ns", pa.int64()),
        pa.field("checksum", pa.uint32(), False),
        pa.field("index", pa.string()),
    ]
)
TYPES = ("kept", "stored", "inferred")
_MOST_JSON_BYTES = 8 << 20
_UPWARDS = r"(^|/)\.\.(/|$)|^$|\x00"
_HINT = "make it again: penstock manifest SOURCE -o MANIFEST"


class Footer(NamedTuple):
    """The facts about all shards."""

    records: tuple[int, ...]
    """The records of each row group."""
    num_bytes: int
    types: str
    """Where the types of the fields came from: one of TYPES."""
    schema: pa.Schema
    has_objects: bool
    """Whether a shard is named as an object of a store, wherever the manifest is."""
    hive: bool | str
    """Whether the names of folders are columns; a text is the folder below which they are, named like a shard."""
    has_overlays: bool
    """Whether a shard had an overlay when the manifest was made."""
    place: str
    """A digest of where the manifest was written. If it was moved, the shards below its folder were, too."""
    fingerprint: str
    """`Dataset.fingerprint`; empty if it depends on more than the manifest."""

    def to_json(self) -> bytes:
        facts = {
            "version": VERSION,
            "records": self.records,
            "bytes": self.num_bytes,
            "types": self.types,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "objects": self.has_objects,
            "hive": self.hive,
            "overlays": self.has_overlays,
            "place": self.place,
            "fingerprint": self.fingerprint,
        }
        return json.dumps(facts, separators=(",", ":")).encode()


def footer_of(text: bytes, path: str) -> Footer:
    """Parse the facts in a footer. Raises FormatError if one is missing or impossible."""
    try:
        facts = parsed_object(text, _MOST_JSON_BYTES)
        version = facts.count("version")
        if version != VERSION:
            raise UnsupportedError(
                f"the manifest has version {version}; this penstock reads version {VERSION}",
                hint="a newer penstock, or make it again",
            )
        records = _counts(facts)
        types, hive = facts.text("types"), facts.any("hive")
        flags = facts.any("objects"), facts.any("overlays")
        is_hive = isinstance(hive, bool) or (is_path(hive) and ".." not in hive.split("/"))
        if types not in TYPES or not is_hive or not all(isinstance(flag, bool) for flag in flags):
            raise FormatError("the facts of the manifest are not valid")
        return Footer(
            records,
            facts.count("bytes"),
            types,
            _schema(facts.text("schema")),
            flags[0],
            hive,
            flags[1],
            facts.text("place"),
            facts.text("fingerprint"),
        )
    except (FormatError, UnsupportedError) as error:
        raise error.at(file=shown(path), hint=_HINT) from None


def _counts(facts: Facts) -> tuple[int, ...]:
    found = facts.list("records")
    if not all(map(is_count, found)) or sum(found) > _MOST_RECORDS:
        raise FormatError("the record counts of the manifest are no counts")
    return tuple(found)


def _schema(text: str) -> pa.Schema:
    try:
        return own_types(schema_of(base64.b64decode(text, validate=True)))
    except (
        *(pa.ArrowException, binascii.Error, ValueError, TypeError, KeyError, OSError),
        RecursionError,
    ) as error:
        raise FormatError(f"the manifest has no valid schema: {error}") from None


class Group(NamedTuple):
    """Some of the shards: the columns of one row group."""

    first_shard: int
    batch: pa.RecordBatch

    def column(self, name: str) -> Any:
        return self.batch.column(name)

    @property
    def firsts(self) -> np.ndarray:
        """The number of each shard's first record."""
        return as_numpy(self.column("first_record"))


# Complexity: one branch for each claim.
def check_group(batch: pa.RecordBatch, first_record: int, num_records: int, path: str) -> None:
    """Raise FormatError or UnsupportedError if the rows of a group are not what a manifest may say. `path`: the manifest."""
    import pyarrow.compute as pc  # slow to import

    problem, row = None, None
    if batch.num_rows > _MOST_GROUP_SHARDS:
        problem = f"a row group has more than {_MOST_GROUP_SHARDS} shards"
    for field in SCHEMA:
        column: Any = batch.column(field.name)
        if not field.nullable and column.null_count:
            problem, row = f"{field.name} is missing", _first(column.is_null())
    for name in ("bytes", "records"):
        if problem is None and (low := np.flatnonzero(as_numpy(batch.column(name)) < 0)).size:
            problem, row = f"{name} is negative", int(low[0])
    if problem is None:
        records = as_numpy(batch.column("records"))
        ends = first_record + np.concatenate([[0], np.cumsum(records)])
        # The sum of int64 may wrap around, that of floats may not.
        is_right = (
            records.sum(dtype=np.float64) < _MOST_RECORDS and ends[-1] - first_record == num_records
        )
        if not is_right or (as_numpy(batch.column("first_record")) != ends[:-1]).any():
            problem = "the record counts of the rows and of the footer differ"
    paths: Any = batch.column("path")
    if problem is None:
        row = _first(pc.match_substring_regex(paths, _UPWARDS))
        problem = None if row is None else "a path leads out of the manifest's folder"
    if problem is None and len(pc.unique(paths)) < batch.num_rows:
        problem = "a shard is listed twice"
    if problem is not None:
        where = "" if row is None else f", shard {row} of its row group"
        raise FormatError(f"the manifest is not valid: {problem}{where}", file=path, hint=_HINT)
    _refuse_places(paths, path)


def _first(mask: Any) -> int | None:
    """The first place where a mask is true; `pc.index` would import pandas."""
    return mask.to_pylist().index(True) if mask.true_count else None


def text_scalar(text: str) -> Any:
    """A text as a scalar of Arrow; `pa.scalar` would import pandas."""
    data = text.encode()
    ends = pa.py_buffer(np.array([0, len(data)], np.int32))
    return pa.StringArray.from_buffers(1, ends, pa.py_buffer(data))[0]


def _refuse_places(paths: Any, path: str) -> None:
    """Raise UnsupportedError if a manifest in a store names something outside that store, or an address has a secret."""
    import pyarrow.compute as pc  # slow to import

    absolute = paths.filter(is_absolute(paths))
    if not len(absolute):
        return
    if is_url(path):
        here = split_url(path).container
        inside = pc.starts_with(absolute, here.partition("?")[0] + "/")
        if (row := _first(pc.invert(inside))) is not None:
            raise UnsupportedError(
                f"the manifest names {shown(absolute[row].as_py())!r}, which is not in its own store",
                file=shown(path),
                hint="copy the manifest to this machine, and open it there, if you trust it",
            )
    web = absolute.filter(pc.match_substring_regex(absolute, "^[hH][tT][tT][pP][sS]?://"))
    for one in web.filter(pc.match_substring_regex(web, r"\?|^[^/]*//[^/]*@")).to_pylist()[:1]:
        raise secret_in(one, path)


def is_absolute(paths: Any) -> Any:
    """Which paths of a manifest are not relative to its folder."""
    import pyarrow.compute as pc  # slow to import

    return pc.match_substring_regex(paths, r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)")


def secret_in(address: str, path: str) -> UnsupportedError:
    """The error for an address with a signature or a password."""
    return UnsupportedError(
        f"{_bare(address)} has a signature or a password, which a manifest must not hold",
        file=shown(path),
        hint="name the objects as s3://, gs:// or az://, and pass credentials when the manifest is opened; "
        "or addresses without a query",
    )


def _bare(address: str) -> str:
    scheme, _, rest = shown(address).partition("://")
    host, slash, key = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{key}"


def is_secret(path: str) -> bool:
    """Whether a name is a presigned address, or has a password."""
    host = path.partition("://")[2].partition("/")[0]
    return is_web(path) and ("?" in path or "@" in host)


def stored_name(path: str, manifest: str) -> str:
    """How a manifest names a shard: relative to its folder if the shard is in it or below. Raises UnsupportedError if
    the name is a secret or cannot be stored."""
    if is_secret(path):
        raise secret_in(path, manifest)
    if is_url(path) != is_url(manifest):
        return path if is_url(path) else os.path.abspath(path)
    if not is_url(path):
        path, manifest = os.path.abspath(path), os.path.abspath(manifest)
    folder = os.path.dirname(manifest).rstrip("/") + "/"
    below = path.removeprefix(folder)
    can_be_relative = below and not is_url(below) and ".." not in below.split("/")
    return below if can_be_relative else path


def digest_of_place(path: str) -> str:
    """What tells whether a manifest was moved since it was written."""
    import hashlib  # costs 3 ms at import, and is rarely needed

    name = shown(path) if is_url(path) else os.path.realpath(path)
    return hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
