"""File systems of fsspec: s3fs, gcsfs, adlfs, memory, and Hugging Face's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from penstock.storage._foreign import Driver, Facts

_SIGNS = ("etag", "versionid", "generation", "md5", "md5hash", "contentmd5", "blobid", "oid", "lastmodified", "mtime", "modified", "updated", "created")  # fmt: skip
"""What file systems tell of a file that is another after each change, without capitals and underscores."""


class FsspecDriver(Driver):
    """Any file system of fsspec."""

    def __init__(self, system: Any) -> None:
        self._system = system
        self.survives_forks = not getattr(system, "async_impl", False)
        protocols = system.protocol
        self.is_in_memory = "memory" in ((protocols,) if isinstance(protocols, str) else protocols)

    def facts(self, path: str) -> Facts:
        return self._facts(path)

    def _facts(self, path: str, **options: Any) -> Facts:
        name = self.name(path)
        self._system.invalidate_cache(self._system._parent(name))
        found: dict[str, Any] = self._system.info(name, **options)
        if found["type"] != "file":
            raise FileNotFoundError(path)
        plain = {key.lower().replace("_", ""): value for key, value in found.items()}
        signs = [f"{key}={plain[key]}" for key in _SIGNS if plain.get(key)]
        return Facts(int(found["size"]), " ".join(signs))

    def name(self, path: str) -> str:
        """The name of a file without the scheme."""
        return self._system._strip_protocol(path)

    def read(self, path: str, start: int, length: int) -> object:
        return self._system.cat_file(self.name(path), start=start, end=start + length)

    def names(self, folder: str, *, below: bool) -> Iterator[str]:
        base = self.name(folder)
        self._system.invalidate_cache(base)
        try:
            found = self._system.find(base, maxdepth=None if below else 1)
        except FileNotFoundError:
            return
        front = base if not base or base.endswith("/") else base + "/"
        yield from (name[len(front) :] for name in found if name.startswith(front))

    def put(self, path: str, file: IO[bytes], size: int) -> None:
        name = self.name(path)
        if not getattr(self._system, "async_impl", False):  # stores need no folders
            self._system.makedirs(self._system._parent(name), exist_ok=True)
        self._system.put_file(f"/dev/fd/{file.fileno()}", name)

    def remove(self, path: str) -> None:
        self._system.rm_file(self.name(path))

    def made_of(self) -> object:
        return self._system.storage_args, self._system.storage_options
