"""Which shards of a job are written, so that a killed job goes on with the others.

A shard gets its name by one rename, and the journal cannot be written in the same moment. So it
says beforehand what the new file will hold; after a restart the file itself tells, by its contents,
whether the rename has happened. No time stamp is believed.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock import _core
from penstock.errors import PenstockError, UnsupportedError
from penstock.framing.sidecar import Index
from penstock.storage import SIDECAR_SUFFIX, TEMPORARY_SUFFIX, LocalStorage

PREFIX = ".penstock-fields-"


class Journal:
    """The shards of one job. Used by one thread."""

    def __init__(self, targets: tuple[str, ...], job: Any) -> None:
        self._targets = targets
        self._folder = os.path.dirname(targets[0]) or "."
        names = "\0".join(os.path.abspath(target) for target in targets)
        self._token = _digest(names)[:12]
        self._path = os.path.join(self._folder, f"{PREFIX}{self._token}.json")
        self._job = _digest(json.dumps(job, sort_keys=True, default=str))
        self._storage = LocalStorage()
        self.done: dict[int, dict[str, Any]] = {}
        self._begun: tuple[int, dict[str, Any]] | None = None

    def written(self) -> list[int]:
        """The shards that an unfinished job has written, whichever job it is."""
        done, begun, _ = self._stored()
        said = done if begun is None else {**done, begun[0]: begun[1]}
        # A file that was put back as it was is to be changed again.
        return [
            shard
            for shard, facts in said.items()
            if shard < len(self._targets) and _holds(self._targets[shard], facts)
        ]

    def is_of_this_job(self) -> bool:
        """Whether it is this very job that is unfinished."""
        return self._stored()[2] == self._job

    def part(self, shard: int) -> str:
        """Where a file that another verb writes lies until it gets its name."""
        folder, name = os.path.split(self._targets[shard])
        return os.path.join(folder, f".{name}.{self._token}{TEMPORARY_SUFFIX}")

    def load(self) -> None:
        """Find out what an earlier run of this job has written, and drop what it left half done.

        Raises:
            UnsupportedError: another job on these files has not been finished.
        """
        if not os.path.exists(self._path):
            return
        done, begun, job = self._stored()
        if job != self._job and (done or begun is not None):
            raise UnsupportedError(
                "another change of the fields of these files has begun and was not finished",
                file=self._targets[0],
                hint=f"call it again the same way, or delete {self._path} to give it up",
            )
        self.done = done
        if begun is not None and _holds(self._targets[begun[0]], begun[1]):
            self.done[begun[0]] = begun[1]
        self._tidy()

    def _stored(self) -> tuple[dict[int, Any], tuple[int, Any] | None, str]:
        """What the journal says: shards done, the one begun, and of which job."""
        try:
            with open(self._path, encoding="utf-8") as file:
                stored = json.load(file)
            done = {int(shard): dict(facts) for shard, facts in stored["done"].items()}
            begun = stored["begun"]
            return done, None if begun is None else (int(begun[0]), dict(begun[1])), stored["job"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, None, ""

    def _tidy(self) -> None:
        """Remove temporary files of targets and of the indexes beside them: nobody else writes them
        while this job lasts."""
        names: dict[str, set[str]] = {}
        for target in self._targets:
            folder, name = os.path.split(target)
            names.setdefault(folder or ".", set()).update((name, name + SIDECAR_SUFFIX))
        for folder, mine in names.items():
            _clear(folder, mine)

    def is_done(self, shard: int) -> bool:
        """Whether a shard is written, and still what was written."""
        facts = self.done.get(shard)
        return facts is not None and _holds(self._targets[shard], facts)

    def start(self) -> None:
        """Note that there is a job, so that what it leaves half done is known as its own."""
        self._save()

    def begin(self, shard: int, facts: dict[str, Any]) -> None:
        """Note what a shard will hold, before it gets its name."""
        self._begun = shard, facts
        self._save()

    def finish(self, shard: int) -> None:
        """Note that a shard has its name. It is written down with the next one's beginning."""
        assert self._begun is not None
        self.done[shard] = self._begun[1]

    def _save(self) -> None:
        stored = {"job": self._job, "begun": self._begun, "done": self.done}
        sink = self._storage.sink(self._path, overwrite=True)
        try:
            sink.write(json.dumps(stored).encode())
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def stop(self) -> None:
        """Nothing goes on. Where nothing was done either, nothing is left to tell."""
        if not self.done and self._begun is None:
            with suppress(OSError):  # what stopped the job is told
                self._tidy()
                self.forget()

    def forget(self) -> None:
        """All is done. What a kill left of the journal itself goes, too."""
        _clear(self._folder, {os.path.basename(self._path)})
        if os.path.exists(self._path):
            os.unlink(self._path)


def _clear(folder: str, names: set[str]) -> None:
    """Remove the temporary files of these names."""
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries]
    for name in found:
        stem = name.removesuffix(TEMPORARY_SUFFIX)
        if stem != name and stem.rpartition(".")[0].removeprefix(".") in names:
            os.unlink(os.path.join(folder, name))


def contents_of(index: Index) -> str:
    """A name for the records of a file, from what its frames say of them."""
    places, checksums = (
        _core.Buffer.from_values(pa.array(part)).crc32c()
        for part in (index.starts, index.checksums)
    )
    return f"records {index.num_records} {places:08x} {checksums:08x}"


def bytes_of(path: str) -> str:
    """A name for the bytes of a file."""
    facts = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            facts.update(part)
    return f"bytes {facts.hexdigest()}"


def _holds(path: str, facts: dict[str, Any]) -> bool:
    """Whether a file is the one that was about to get this name."""
    if _size(path) != facts["num_bytes"]:
        return False
    if facts["contents"].startswith("bytes"):
        return bytes_of(path) == facts["contents"]
    from penstock.dataset import open as open_dataset
    from penstock.framing.framed import FramedReader

    try:
        reader = open_dataset(path, raw=True, index="never").reader(0)
        return isinstance(reader, FramedReader) and contents_of(reader.index) == facts["contents"]
    except PenstockError:
        return False


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
