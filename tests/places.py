"""Where tests write: a folder of this machine, or a prefix of an object store that is used as if it were one."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.storage.urls import is_url
from remote.servers.s3 import S3


class ObjectPath:
    """What the tests need of `pathlib.Path`, for an object of the store that the environment names. It uses the tests'
    own client."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._path = self._url.removeprefix("s3://")

    def __fspath__(self) -> str:
        return self._url

    __str__ = __fspath__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self._url)

    def __repr__(self) -> str:
        return f"ObjectPath({self._url!r})"

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(f"{self._url}/{name}")

    @property
    def parent(self) -> ObjectPath:
        return ObjectPath(posixpath.dirname(self._url))

    @property
    def name(self) -> str:
        return posixpath.basename(self._url)

    @property
    def suffix(self) -> str:
        return posixpath.splitext(self.name)[1]

    def is_file(self) -> bool:
        return self._client().call("HEAD", self._path).status == 200

    def exists(self) -> bool:
        return self.is_file()

    def read_bytes(self) -> bytes:
        return self._client().get(self._path)

    def write_bytes(self, data: bytes | bytearray) -> None:
        self._client().put(self._path, bytes(data))

    def unlink(self) -> None:
        self._client().delete(self._path)

    def rename(self, other: Any) -> ObjectPath:
        """Copy and remove, as stores do."""
        other.write_bytes(self.read_bytes())
        self.unlink()
        return other

    def rglob(self, pattern: str = "*") -> Iterator[ObjectPath]:
        """All objects below this prefix."""
        assert pattern == "*"
        bucket, _, prefix = self._path.partition("/")
        for key in self._client().keys(bucket, f"{prefix}/"):
            yield ObjectPath(f"s3://{bucket}/{key}")

    def relative_to(self, other: object) -> str:
        return self._url.removeprefix(f"{other}/")

    @staticmethod
    def _client() -> S3:
        told = os.environ
        return S3(
            told["AWS_ENDPOINT_URL"], told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"]
        )


Place = Path | ObjectPath


def at(path: str | os.PathLike[str]) -> Place:
    """The file or object of this name."""
    name = os.fspath(path)
    return ObjectPath(name) if is_url(name) else Path(name)
