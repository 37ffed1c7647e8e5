"""What a conversion has finished, kept beside its target, so that a killed one can go on.

Finished parts lie beside the target under names of their own until all are there. The journal says
which those are and of which job: another source, or other options, make another job, and the old
parts are dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from penstock.errors import FormatError
from penstock.folders import refuse_other_files, remove, size_of
from penstock.format import TextIndex
from penstock.framing import sidecar
from penstock.sinks import TEMPORARY_SUFFIX, close_as
from penstock.storage import Storage

PREFIX = ".penstock-"


@dataclass(frozen=True, slots=True)
class FinishedPart:
    """One whole part: its number and what is in it."""

    number: int
    num_records: int
    num_bytes: int


class Journal:
    """The parts of one target. Used by one thread."""

    def __init__(
        self,
        target: str,
        folder: str,
        job: Any,
        index_folder: str | None,
        storage: Storage,
        text_index: TextIndex | None = None,
    ) -> None:
        name = os.path.basename(os.path.normpath(target))
        folder = folder or "."
        self._folder = folder
        self._token = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=6).hexdigest()
        self._path = os.path.join(folder, f"{PREFIX}convert-{self._token}.json")
        self._job = hashlib.blake2b(
            json.dumps(job, sort_keys=True, default=str).encode(), digest_size=16
        ).hexdigest()
        self._index_folder = index_folder
        self._storage = storage
        self._text_index = text_index
        self.parts: dict[int, FinishedPart] = {}
        self.is_publishing = False

    def part_path(self, number: int) -> str:
        """Where a part lies until all are finished."""
        return os.path.join(self._folder, f"{PREFIX}part-{self._token}-{number:05d}")

    def load(self, finals: list[str]) -> None:
        """Find out what an earlier run of the same job has finished; drop what others left."""
        try:
            with open(self._path, encoding="utf-8") as file:
                stored = json.load(file)
            same = stored["job"] == self._job
            parts = [FinishedPart(**part) for part in stored["parts"]]
            self.is_publishing = same and bool(stored["publishing"])
        except (OSError, ValueError, KeyError, TypeError):
            same, parts = False, []
        for part in parts if same else []:
            places = [self.part_path(part.number)]
            if self.is_publishing and part.number < len(finals):
                places.append(finals[part.number])
            if any(_size(place) == part.num_bytes for place in places):
                self.parts[part.number] = part
        self._tidy()

    def _tidy(self) -> None:
        """Remove what a killed run left of unfinished parts, and parts of other jobs."""
        own = f"{PREFIX}part-{self._token}-"
        kept = {self.part_path(number) for number in self.parts}
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            path = os.path.join(self._folder, name)
            unfinished = name.startswith("." + own) and name.endswith(TEMPORARY_SUFFIX)
            of = path.removesuffix(".penstock").removesuffix(".idx")
            if unfinished or (name.startswith(own) and of not in kept):
                remove(path)

    def _beside(self, path: str) -> list[str]:
        """The indexes of a file."""
        own = sidecar.path_for(path, self._index_folder)
        return [own] if self._text_index is None else [own, self._text_index.path_for(path)]

    def finish(self, part: FinishedPart) -> None:
        """Note that a part is whole."""
        self.parts[part.number] = part
        self._save()

    def _save(self) -> None:
        parts = [asdict(self.parts[number]) for number in sorted(self.parts)]
        stored = {"job": self._job, "publishing": self.is_publishing, "parts": parts}
        sink = self._storage.sink(self._path, overwrite=True)
        try:
            sink.write(json.dumps(stored).encode())
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def publish(self, finals: list[str], *, overwrite: bool) -> None:
        """Give all parts their names, with their indexes, and forget the job."""
        if not overwrite and not self.is_publishing:
            refuse_existing(finals)
        self.is_publishing = True
        self._save()
        for number, final in enumerate(finals):
            part = self.part_path(number)
            if os.path.isdir(part) and os.path.isdir(final):
                refuse_other_files(final)
                old_folder = final.rstrip("/") + TEMPORARY_SUFFIX
                os.replace(final, old_folder)
                os.replace(part, final)
                remove(old_folder)
            elif os.path.exists(part):
                close_as(part, final)
                os.replace(part, final)
            for old, new in zip(self._beside(part), self._beside(final), strict=True):
                if os.path.exists(old):
                    close_as(old, final)
                    os.replace(old, new)
        _sync(self._folder)
        self.forget()

    def forget(self) -> None:
        """Remove the journal and whatever parts there are."""
        for number in self.parts:
            part = self.part_path(number)
            for path in (part, *self._beside(part)):
                if os.path.exists(path):
                    remove(path)
        if os.path.exists(self._path):
            os.unlink(self._path)


def refuse_existing(paths: list[str]) -> None:
    """Raise FileExistsError if one of the names is taken."""
    for path in paths:
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")


def _size(path: str) -> int:
    try:
        return size_of(path)
    except (OSError, FormatError):
        return -1


def _sync(folder: str) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
