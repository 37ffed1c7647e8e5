"""The journal of a conversion, stored next to its target. With it, a killed conversion can continue.

Finished parts stay next to the target under temporary names until all are complete. The journal lists the parts and
the facts of the job. A job with another source or other options is a different job, and removes the old parts. Before
the first part gets its final name, the journal lists all final names, so that the next run knows which files this job
has made. The names of parts and journal depend only on the target's name, so only one conversion at a time may write
a target (`alone_at`).
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from penstock.errors import LimitError
from penstock.framing.index import ahead, sidecar
from penstock.framing.index.text import TextIndex
from penstock.storage import journal
from penstock.storage.base import Storage
from penstock.storage.folder import put_in_place, refuse_other_files, remove, state_of
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.journal import Made
from penstock.storage.local_sink import Calls, close_as, refuse_device, sync_path

PREFIX = ".penstock-"


@contextmanager
def alone_at(target: str, folder: str) -> Generator[None]:
    """Lock a target, whose files are in `folder`, against other conversions, or raise BlockingIOError."""
    name = f"{PREFIX}convert-{_token(target)}.lock{TEMPORARY_SUFFIX}"
    message = "another conversion is writing it; wait until that ends"
    with journal.alone_with(os.path.join(folder, name), message, target):
        yield


def _token(target: str) -> str:
    return journal.token_of(os.path.basename(os.path.normpath(target)))


class Journal(journal.Journal):
    """The finished parts of one target. Only one thread of one process may use it at a time."""

    def __init__(
        self,
        target: str,
        folder: str,
        job: Any,
        index_folder: str | None,
        storage: Storage,
        text_index: TextIndex | None = None,
    ) -> None:
        self._folder, token = folder or ".", _token(target)
        path = os.path.join(self._folder, f"{PREFIX}convert-{token}.json")
        super().__init__(path, job, storage)
        self._own = f"{PREFIX}part-{token}-"
        self._index_folder = index_folder
        self._text_index = text_index

    @property
    def is_publishing(self) -> bool:
        """Whether some parts may already have their final names."""
        return bool(self._files)

    @property
    def is_whole(self) -> bool:
        """Whether all parts are written, and only some final names are missing."""
        return self.is_publishing and len(self.done) == len(self._files)

    @property
    def part_pattern(self) -> str:
        return os.path.join(self._folder, self._own + "{shard:05d}")

    def part_path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self._own}{number:05d}")

    def is_part(self, path: str | None) -> bool:
        return path is not None and os.path.basename(path).startswith(self._own)

    def load(self) -> None:
        """Read which parts an earlier run of this job has finished, and remove parts of other jobs."""
        try:
            stored = journal.load(self._path)
        except LimitError:
            stored = None
        if stored is not None and stored.job == self._job:
            self._files = stored.files
            for number, part in stored.done.items():
                places = [self.part_path(number), *self._files[number : number + 1]]
                if any(map(part.is_at, places)):
                    self.done[number] = part
        self._tidy()

    def _tidy(self) -> None:
        """Remove the unfinished files of a killed run, and parts of other jobs."""
        begun = (f"..{self._own}", f".{os.path.basename(self._path)}.")
        parts = [self.part_path(number) for number in self.done]
        kept = {
            os.path.basename(path)
            for part in parts
            for path in (part, f"{part}.idx", sidecar.path_for(part, None))
        }

        def is_left(name: str) -> bool:
            is_part = name.startswith((self._own, f".{self._own}"))
            is_unfinished = name.startswith(begun) and name.endswith(TEMPORARY_SUFFIX)
            return is_unfinished or (is_part and name not in kept)

        journal.clear(self._folder, is_left)

    def _beside(self, path: str) -> list[str]:
        own = sidecar.path_for(path, self._index_folder)
        return [own] if self._text_index is None else [own, self._text_index.path_for(path)]

    def _text_indexes(self, finals: list[str]) -> list[str]:
        kind = self._text_index
        if kind is None:
            return []
        made = [os.path.exists(kind.path_for(self.part_path(n))) for n in range(len(finals))]
        return [
            kind.path_for(final) for final, is_made in zip(finals, made, strict=True) if is_made
        ]

    def add(self, number: int, num_bytes: int, notes: tuple[str, ...]) -> None:
        state = state_of(self.part_path(number))
        self.done[number] = Made(state, num_bytes, notes=notes)

    def finish(self, number: int, num_bytes: int, notes: tuple[str, ...]) -> None:
        self.add(number, num_bytes, notes)
        self._save()

    def publish(self, finals: list[str], *, overwrite: bool) -> None:
        """Give all parts and their indexes their final names, and remove the journal."""
        if not overwrite and not self.is_publishing:
            refuse_existing(finals)
            refuse_existing(self._text_indexes(finals))
        for final in finals:
            refuse_device(final)
        self._files = finals
        self._save()
        self._lay_indexes(finals)
        for number, final in enumerate(finals):
            self._name(number, final)
        for folder in {self._folder, *(os.path.dirname(final) or "." for final in finals)}:
            sync_path(Calls(), folder)
        self.forget()

    def _name(self, number: int, final: str) -> None:
        """Give a part and its indexes their final names, unless an earlier run has done so."""
        part, is_named = self.part_path(number), self.done[number].is_at(final)
        if os.path.isdir(part) and is_named:
            remove(part)  # the folder that had this final name before
        elif os.path.isdir(part) and os.path.isdir(final):
            refuse_other_files(final)
            put_in_place(Calls(), part, final)
        elif os.path.exists(part):
            close_as(part, final)
            os.replace(part, final)
        for old, new in zip(self._beside(part), self._beside(final), strict=True):
            if os.path.exists(old):
                close_as(old, final)
                os.replace(old, new)
        ahead.left_of(final, self._index_folder)

    def _lay_indexes(self, finals: list[str]) -> None:
        """Move the indexes to their final places, so that each part has its index once it is renamed."""
        for number, final in enumerate(finals):
            part = self.part_path(number)
            if os.path.isfile(part):
                own = sidecar.path_for(part, self._index_folder)
                ahead.lay(own, part, final, self._index_folder)
        for folder in dict.fromkeys((self._folder, self._index_folder or self._folder)):
            if os.path.isdir(folder):  # it is created with the first index
                sync_path(Calls(), folder)

    def forget(self) -> None:
        for number in self.done:
            part = self.part_path(number)
            for path in (part, *self._beside(part)):
                if os.path.exists(path):
                    remove(path)
        self.done, self._files = {}, []
        self._tidy()
        super().forget()


def refuse_existing(paths: list[str]) -> None:
    """Raise FileExistsError if one of the files exists."""
    for path in paths:
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
