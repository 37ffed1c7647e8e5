"""What a conversion has finished, kept beside its target, so that a killed one can continue.

Finished parts stay beside the target under temporary names until all are complete. The journal lists
them with their job: another source, or other options, make another job, and the old parts are dropped.
Before the first part gets its final name the journal lists all of these names, so that the next run
knows which files are its own.

The names of parts and journal are made from the target's name alone, so one conversion at a time
writes a target (`alone_at`).
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
from penstock.storage.folder import put_in_place, refuse_other_files, remove
from penstock.storage.hidden import TEMPORARY_SUFFIX
from penstock.storage.journal import Made
from penstock.storage.local_sink import Calls, close_as, refuse_device, sync_path

PREFIX = ".penstock-"


@contextmanager
def alone_at(target: str, folder: str) -> Generator[None]:
    """Keep other conversions away from a target, whose files are in this folder.

    Raises:
        BlockingIOError: another one is writing it.
    """
    name = f"{PREFIX}convert-{_token(target)}.lock{TEMPORARY_SUFFIX}"
    message = "another conversion is writing it; wait for that to end"
    with journal.alone_with(os.path.join(folder, name), message, target):
        yield


def _token(target: str) -> str:
    return journal.token_of(os.path.basename(os.path.normpath(target)))


class Journal(journal.Journal):
    """The parts of one target. Used by one thread, of one process at a time."""

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
        """Whether parts may have their final names already."""
        return bool(self._files)

    @property
    def is_whole(self) -> bool:
        """Whether only the final names of some parts are missing."""
        return self.is_publishing and len(self.done) == len(self._files)

    @property
    def part_pattern(self) -> str:
        """The names of all parts, as `write` takes them."""
        return os.path.join(self._folder, self._own + "{shard:05d}")

    def part_path(self, number: int) -> str:
        """The temporary name of a part."""
        return os.path.join(self._folder, f"{self._own}{number:05d}")

    def is_part(self, path: str | None) -> bool:
        return path is not None and os.path.basename(path).startswith(self._own)

    def load(self) -> None:
        """Read what an earlier run of the same job has finished; remove parts of other jobs."""
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
        """Remove what a killed run left of unfinished files, and parts of other jobs."""
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
        """The indexes of a file."""
        own = sidecar.path_for(path, self._index_folder)
        return [own] if self._text_index is None else [own, self._text_index.path_for(path)]

    def _text_indexes(self, finals: list[str]) -> list[str]:
        """The text indexes that will appear beside files of these names."""
        kind = self._text_index
        if kind is None:
            return []
        made = [os.path.exists(kind.path_for(self.part_path(n))) for n in range(len(finals))]
        return [
            kind.path_for(final) for final, is_made in zip(finals, made, strict=True) if is_made
        ]

    def add(self, number: int, num_bytes: int, notes: tuple[str, ...]) -> None:
        """Remember that a part is whole."""
        state = journal.state_of(self.part_path(number))
        self.done[number] = Made(state, num_bytes, notes=notes)

    def finish(self, number: int, num_bytes: int, notes: tuple[str, ...]) -> None:
        """The same, and save the journal."""
        self.add(number, num_bytes, notes)
        self._save()

    def publish(self, finals: list[str], *, overwrite: bool) -> None:
        """Give all parts their names, with their indexes, and forget the job."""
        if not overwrite and not self.is_publishing:
            refuse_existing(finals)
            refuse_existing(self._text_indexes(finals))
        for final in finals:
            refuse_device(final)
        self._files = finals
        self._save()
        self._lay_indexes(finals)
        for number, final in enumerate(finals):
            part, is_named = self.part_path(number), self.done[number].is_at(final)
            if os.path.isdir(part) and is_named:
                remove(part)  # the folder that had the name before
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
        sync_path(Calls(), self._folder)
        self.forget()

    def _lay_indexes(self, finals: list[str]) -> None:
        """Put the indexes of the parts where they are found as soon as the parts have their names."""
        for number, final in enumerate(finals):
            part = self.part_path(number)
            if os.path.isfile(part):
                own = sidecar.path_for(part, self._index_folder)
                ahead.lay(own, part, final, self._index_folder)
        for folder in dict.fromkeys((self._folder, self._index_folder or self._folder)):
            if os.path.isdir(folder):  # a folder of indexes is made with the first one
                sync_path(Calls(), folder)

    def forget(self) -> None:
        """Remove the journal and all parts, finished or not."""
        for number in self.done:
            part = self.part_path(number)
            for path in (part, *self._beside(part)):
                if os.path.exists(path):
                    remove(path)
        self.done, self._files = {}, []
        self._tidy()
        super().forget()


def refuse_existing(paths: list[str]) -> None:
    """Raise FileExistsError if one of the names is taken."""
    for path in paths:
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
