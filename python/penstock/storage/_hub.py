"""Data sets of Hugging Face, `hf://datasets/owner/name@revision/path`, through huggingface_hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import IO, Any

from penstock.errors import UnsupportedError
from penstock.storage._foreign import Facts
from penstock.storage._fsspec import FsspecDriver
from penstock.storage.storage_options import StorageOptions

SCHEME = "hf://"


class HubDriver(FsspecDriver):
    """Reads each data set in the commit that its revision named first. A commit never changes, and a pickle has it."""

    writes = False

    def __init__(
        self, options: Mapping[str, Any] | None = None, commits: dict[str, str] | None = None
    ) -> None:
        if find_spec("huggingface_hub") is None:
            raise UnsupportedError(
                "hf:// names need huggingface_hub", hint="pip install 'penstock[hf]'"
            )
        from huggingface_hub import HfFileSystem

        self._options = options if isinstance(options, StorageOptions) else StorageOptions(options)
        endpoint = self._options.get("endpoint") or os.environ.get("HF_ENDPOINT")
        token = self._options.get("token")
        super().__init__(HfFileSystem(endpoint=endpoint, token=token, skip_instance_cache=True))
        self.survives_forks = False  # its connections do not
        self._commits = commits or {}
        self._known: dict[str, Facts] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return HubDriver, (self._options, self._commits)

    def facts(self, path: str) -> Facts:
        if path not in self._known:
            self._known[path] = super().facts(path)
        return self._known[path]

    def name(self, path: str) -> str:
        """The name in the commit."""
        found = self._system.resolve_path(path)
        asked = f"{found.repo_type}s/{found.repo_id}@{found.revision}"
        if asked not in self._commits:
            info = self._system._api.repo_info(
                found.repo_id, repo_type=found.repo_type, revision=found.revision
            )
            self._commits[asked] = info.sha
        place = f"{found.repo_type}s/{found.repo_id}@{self._commits[asked]}"
        return f"{place}/{found.path_in_repo}".rstrip("/")

    def read(self, path: str, start: int, length: int) -> object:
        with self._system.open(self.name(path), "rb", cache_type="none") as file:
            file.seek(start)
            return file.read(length)

    def put(self, path: str, file: IO[bytes], size: int) -> None:
        raise AssertionError("it is refused before")

    def made_of(self) -> object:
        return ()  # the options refuse by themselves
