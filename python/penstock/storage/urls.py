"""Names of objects: `s3://bucket/key` and its kin.

| scheme | store | container |
|---|---|---|
| `s3://bucket/key`, `s3a://` | Amazon S3 and all that speak its protocol | the bucket |
| `gs://bucket/key`, `gcs://` | Google Cloud Storage | the bucket |
| `az://container/key`, `abfs://`, `abfss://container@account.dfs.core.windows.net/key` | Azure Blob Storage | the container |
| `https://host/path`, `http://` | a web server | the host |

A key is taken as it is written: nothing in it is unquoted, and `#` and `?` belong to it. Web addresses are written as in
a browser: quoted, and they may have a query, which may be a signature. It is never shown: `errors.shown` leaves it out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from penstock.errors import UnsupportedError, not_local, shown

_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SAME = {"s3a": "s3", "gcs": "gs"}
_KNOWN = ("s3", "gs", "az", "abfs", "abfss", "http", "https")
_WEB = ("http", "https")


class Url(NamedTuple):
    """The name of an object, or of a prefix."""

    scheme: str
    container: str
    """What one client connects to, as a URL: `s3://bucket`."""
    key: str


def is_url(path: str) -> bool:
    """Whether a path names an object and not a local file."""
    return _URL.match(path) is not None


def real_path(path: str) -> str:
    """The same for all names of a file: without links and relative parts. An object has one name."""
    return path if is_url(path) else os.path.realpath(path)


def has_client(path: str) -> bool:
    """Whether penstock reads names of this scheme."""
    match = _URL.match(path)
    scheme = "" if match is None else match["scheme"].lower()
    return scheme == "hf" or _SAME.get(scheme, scheme) in _KNOWN


def split_url(path: str) -> Url:
    """Split the name of an object.

    Raises:
        UnsupportedError: penstock has no client for this scheme, or the name has no bucket.

    Example:
        >>> from penstock.storage.urls import split_url
        >>> split_url("s3://bucket/train/a.tar")
        Url(scheme='s3', container='s3://bucket', key='train/a.tar')
    """
    match = _URL.match(path)
    scheme = "" if match is None else match["scheme"].lower()
    scheme = _SAME.get(scheme, scheme)
    if scheme == "file":
        raise not_local(path)
    if match is None or scheme not in _KNOWN:
        raise UnsupportedError(
            f"penstock has no client for {scheme}:// names",
            file=shown(path),
            hint="names that begin with s3://, gs://, az://, abfs://, hf:// or https://",
        )
    container, _, key = path[match.end() :].partition("/")
    if not container:
        raise UnsupportedError("the name has no bucket or host", file=shown(path))
    if scheme in _WEB:
        bare, mark, query = path[match.end() :].partition("?")
        container, _, key = bare.partition("/")
        return Url(scheme, f"{scheme}://{container}{mark}{query}", unquote(key))
    return Url(scheme, f"{scheme}://{container}", key)


def has_plain_key(path: str) -> bool:
    """Whether the client can say the key of an object: one without //, /./, /../ and control characters."""
    key = split_url(path).key
    parts = key.split("/")
    return not any(part in ("", ".", "..") for part in parts) and not _CONTROL.search(key)


def is_web(path: str) -> bool:
    """Whether a path is a web address. A web server cannot list files."""
    match = _URL.match(path)
    return match is not None and match["scheme"].lower() in _WEB


def texts(source: Any) -> Iterator[str]:
    """The names in a source: a path, or a list of paths."""
    if isinstance(source, (str, os.PathLike)):
        yield os.fsdecode(source)
    elif isinstance(source, (list, tuple)):
        items: Iterable[Any] = source
        for item in items:
            yield from texts(item)


def refuse_web_target(path: str) -> None:
    """Raise UnsupportedError if a file would be written to a web server."""
    if is_web(path):
        raise UnsupportedError(
            "penstock does not write to web servers",
            file=shown(path),
            hint="write to this machine, or to s3://, gs:// or az://",
        )
