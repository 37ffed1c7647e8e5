"""Values that a function has computed for an overlay. They are stored shard by shard, so that a call that was killed
continues with the other shards. The overlay itself appears once there are values for all shards."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from penstock import describe
from penstock.datasets.dataset import Dataset
from penstock.errors import FormatError, SchemaError, UnsupportedError
from penstock.overlay.file import Overlay, OverlayWriter
from penstock.overlay.places import removal
from penstock.overlay.view import Changes
from penstock.storage.local import sink_for
from penstock.verbs.fields._values import NewFields
from penstock.verbs.fields.overlays import identify


class Unfinished:
    """The stored values of one call. In a `with` block that writes the overlay; they are removed at its end, or if the
    same call would fail again."""

    def __init__(self, dataset: Dataset, name: str, new: NewFields, *, overwrite: bool) -> None:
        self._dataset, self._name, self._schema = dataset, name, new.schema
        self._place = dataset.files.overlay_places[-1]
        self._keeps = new.is_computed and len(dataset.paths) > 1
        self._overwrite = overwrite
        job = _facts(dataset, name, new) if self._keeps else ""
        self._paths = [self._place.unfinished_path(path, name, job) for path in dataset.paths]
        self._there: set[str] = set()
        self._begun = time.time()

    def __enter__(self) -> Self:
        paths = self._dataset.paths
        self._place.look(paths)
        found = [one for path in paths for one in self._place.unfinished_of(path, self._name)]
        others = [path for path in found if path not in self._paths]
        if others and self._keeps and not self._overwrite:
            raise UnsupportedError(
                f"an earlier call was killed when it had computed the overlay {self._name!r} for "
                f"{describe.count(len(others))} of {len(paths)} files, with another function, or from other values of "
                "what it reads",
                file=others[0],
                hint="repeat that call with the function as it was; or "
                f"{removal('SOURCE', self._name, self._place.folder)} starts again",
            )
        self._there = set(found)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and not _would_fail_again(error):
            return
        for path in self._there:
            self._place.storage.remove(path)
        if error is None and self._there and self._place.storage.changes_in_place:
            for shard in range(len(self._paths)):
                self._remove_temporaries(shard)
        for path in self._dataset.paths if self._there else ():
            self._place.remove_if_empty(path)

    def _remove_temporaries(self, shard: int) -> None:
        """Remove the beginnings of files that killed calls left."""
        path = self._dataset.paths[shard]
        mine = self._place.path_of(path, self._name), self._paths[shard]
        starts = tuple(f".{os.path.basename(one)}." for one in mine)
        for left in self._place.storage.leftovers(self._place.folder_of(path)):
            if os.path.basename(left.path).startswith(starts) and left.written < self._begun:
                self._place.storage.discard(left)

    def missing(self) -> list[int]:
        """Return the shards whose values are still to be computed."""
        shards = range(len(self._paths))
        return [shard for shard in shards if not self._is_stored(shard)]

    def values(self, shard: int, computed: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the values of a shard, as they are stored, or as they are computed and then stored."""
        if not self._keeps:
            yield from computed
            return
        stored = self._stored(shard)
        if stored is None:
            self._store(shard, computed)
            stored = self._opened(shard)
        try:
            yield from stored.blocks()
        finally:
            stored.close()

    def _is_stored(self, shard: int) -> bool:
        stored = self._stored(shard)
        if stored is not None:
            stored.close()
        return stored is not None

    def _stored(self, shard: int) -> Overlay | None:
        if self._paths[shard] not in self._there:
            return None
        try:
            found = self._opened(shard)
        except FormatError:
            return None
        if identify(self._dataset, shard).fits(found.identity):
            return found
        found.close()
        return None

    def _opened(self, shard: int) -> Overlay:
        return Overlay(self._paths[shard], self._place, self._dataset.options.limits)

    def _store(self, shard: int, values: Iterable[pa.RecordBatch]) -> None:
        path, data = self._paths[shard], self._dataset.paths[shard]
        sink = sink_for(self._place.storage, path, data, overwrite=True)
        try:
            writer = OverlayWriter(sink, self._name, 0, self._schema, Changes())
            for batch in values:
                writer.write(batch)
            writer.finish(identify(self._dataset, shard))
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        self._there.add(path)


def _facts(dataset: Dataset, name: str, new: NewFields) -> str:
    """Return what identifies the values: the function, and the overlays that it reads from."""
    overlays, facts = dataset.files.overlays, [new.facts()]
    facts.append([str(dataset.schema.field(field).type) for field in new.reads])
    if overlays is not None and any(map(overlays.is_overlaid, new.reads)):
        digests = [overlays.digests(shard) for shard in range(len(dataset.paths))]
        mine = f"{name}\0"
        facts.append([[one for one in found if not one.startswith(mine)] for found in digests])
    return json.dumps(facts, default=str)


def _would_fail_again(error: Any) -> bool:
    """Whether an error is of the function or its values, and not of a file, the machine or the memory."""
    mine = (SchemaError, TypeError, ValueError, LookupError, AttributeError, NameError)
    return isinstance(error, mine) and not isinstance(error, FormatError)
