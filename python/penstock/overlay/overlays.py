"""The overlays of the shards of a dataset, and how a shard is opened with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.contract.added import open_with_nulls
from penstock.contract.format import Format, Options, Reader
from penstock.contract.opening import open_shard
from penstock.engine.pipeline import in_order
from penstock.errors import SchemaError, StaleIndexError
from penstock.limits import Limits
from penstock.overlay._block_cache import BlockCache
from penstock.overlay.file import Overlay, find
from penstock.overlay.identity import identity_of
from penstock.overlay.places import Place, removal
from penstock.overlay.reader import OverlaidReader
from penstock.overlay.view import View
from penstock.storage.base import Source
from penstock.storage.pyarrow_files import translated


class Overlays:
    """The overlays of a dataset's shards, and the fields that they add to its records.

    Args:
        paths: the shards.
        places: where their overlays are. Those of a later place are applied after those of an earlier one.
        limits: the limits on the memory for a file.
        known: for some shards of a dataset that was opened before: the fields that overlays of any of its shards add. These
            shards have been compared with their overlays, and are not compared again.
    """

    def __init__(
        self,
        paths: Sequence[str],
        places: Sequence[Place],
        limits: Limits,
        known: Mapping[str, pa.Field] | None = None,
    ) -> None:
        self._is_compared = known is not None
        self._places = places
        cache = BlockCache()
        self._shards = list(
            in_order(
                [lambda: iter(paths)],
                lambda path: [[one for at in places for one in find(path, at, limits, cache)]],
                lambda found: 0,
                max((at.storage.reads_at_once or 1 for at in places), default=1),
            )
        )
        self._views = [View(overlays) for overlays in self._shards]
        self._refuse_different_changes(paths)
        self.fields: dict[str, pa.Field] = {}
        """The visible fields of the overlays."""
        for shard, path in enumerate(paths):
            for name in self._views[shard].owners:
                self._add(name, shard, path)
        for name, field in self.fields.items():
            if any(name not in view.owners for view in self._views):
                self.fields[name] = field.with_nullable(True)
        self.fields = self.fields if known is None else dict(known)

    def _refuse_different_changes(self, paths: Sequence[str]) -> None:
        """Raise SchemaError if fields were dropped or renamed in some of the shards only: the same name would mean
        different fields."""
        for shard, view in enumerate(self._views):
            if view.changes != self._views[0].changes:
                fewer, more = sorted((0, shard), key=lambda n: len(self._views[n].changes))
                overlay = [overlay for overlay in self._shards[more] if overlay.changes][-1]
                remove = removal("SOURCE", overlay.name, overlay.place.folder)
                raise SchemaError(
                    f"the overlay {overlay.name!r} drops or renames fields, but not in all files",
                    file=paths[more],
                    found=f"{paths[fewer]} without it",
                    hint=f"{remove}; if bake_fields was interrupted, call it again; or open(..., overlays=False)",
                )

    def _owner(self, shard: int, name: str) -> tuple[Overlay, str] | None:
        """The overlay that has the values of a visible field of a shard, and the field's name there. None if no
        overlay of the shard has them."""
        owner = self._views[shard].owners.get(name)
        return None if owner is None else (self._shards[shard][owner.number], owner.name)

    def _add(self, name: str, shard: int, path: str) -> None:
        owner = self._owner(shard, name)
        assert owner is not None, "the name is from the view"
        overlay, stored = owner
        field = overlay.schema.field(stored).with_name(name)
        known = self.fields.setdefault(field.name, field)
        if known.type != field.type:
            raise SchemaError(
                f"the overlay {overlay.name!r} has a different type in an earlier shard",
                file=overlay.path,
                field=field.name,
                expected=known.type,
                found=field.type,
                hint=_without(path, overlay),
            )
        if field.nullable:
            self.fields[field.name] = known.with_nullable(True)

    def digests(self, shard: int) -> list[str]:
        """The digests that identify the overlays of one shard."""
        return [f"{overlay.name}\0{overlay.digest}" for overlay in self._shards[shard]]

    def of(self, shard: int) -> list[Overlay]:
        """The overlays of one shard, in the order in which they were made."""
        return self._shards[shard]

    def names(self, names: Sequence[str], but: str | None = None) -> list[str]:
        """The visible fields of files whose own fields are `names`, without fields that the overlay `but` adds."""
        if not self._views:
            return list(names)
        own = filter(None, map(self._views[0].after, names))
        return list(dict.fromkeys([*own, *(n for n in self.fields if not self.is_from(but, n))]))

    def is_from(self, overlay: str | None, name: str) -> bool:
        """Whether the values of a visible field come from the overlay with this name in the last place, in each shard
        where they come from an overlay."""
        owners = [self._owner(shard, name) for shard in range(len(self._views))]
        found = {(one[0].name, one[0].place) for one in owners if one is not None}
        return found == {(overlay, self._places[-1])}

    def changed(self, names: Sequence[str]) -> dict[str, str | None]:
        """The visible name of each dropped or renamed field of the files, by its own name; None if not visible."""
        after = {name: self._views[0].after(name) for name in names}
        return {name: now for name, now in after.items() if now != name}

    def is_overlaid(self, name: str) -> bool:
        """Whether a visible field has its values in an overlay, or another name in the files."""
        return name in self.fields or self._views[0].before(name) != name

    def open(
        self,
        shard: int,
        fmt: Format,
        source: Source,
        options: Options,
        settled: Any,
        names: Sequence[str] | None,
    ) -> Reader:
        """Open a shard, joined with its overlays.

        Args:
            settled: the schema of the dataset's files, if known and not given by the caller.
            names: the fields of the dataset in order; None if not known yet.

        Raises:
            StaleIndexError: an overlay was made for another state of the shard.
        """
        given = options.schema
        base = self._opened(shard, fmt, source, options, settled)
        stale = self.stale(shard, base, source, counted=options.damage != "error")
        if stale is not None:
            raise stale
        fields = self.fields
        if isinstance(given, (pa.Schema, dict)):
            asked = list(given.names if isinstance(given, pa.Schema) else given)
            fields = {
                name: given.field(name) if isinstance(given, pa.Schema) else self.fields[name]
                for name in asked
                if name in self.fields
            }
            names = asked if names is None else names
        view = self._views[shard]
        owners = {name: self._owner(shard, name) for name in fields}
        with translated(source.path):  # a file may have field names that are not valid text
            order = [*(names or ()), *view.names(base.schema.names), *fields]
            return OverlaidReader(base, source.path, view, fields, owners, order, options.damage)

    def _opened(
        self, shard: int, fmt: Format, source: Source, options: Options, settled: Any
    ) -> Reader:
        given = options.schema
        if isinstance(given, dict):
            own = {self._own_name(shard, name, source.path): name for name in given}
            schema = {own_name: given[name] for own_name, name in own.items() if own_name}
            return open_shard(fmt, source, replace(options, schema=schema))
        if isinstance(given, pa.Schema):
            fields = self._own_fields(shard, given, source.path)
            if options.retyped is not None:
                known = {field.name for field in fields}  # as in `_settled_fields`
                fields += [field for field in options.retyped.own if field.name not in known]
            return self._without_missing(fmt, source, options, pa.schema(fields, given.metadata))
        if not isinstance(settled, pa.Schema):
            return open_shard(fmt, source, options)
        fields = self._settled_fields(shard, settled)
        return self._without_missing(fmt, source, options, pa.schema(fields, settled.metadata))

    def _settled_fields(self, shard: int, settled: pa.Schema) -> list[pa.Field]:
        """The fields to read from a shard, under its own names, if the schema of the files is known. Fields that are
        not visible are included, because `Files.complete` would refuse them if they were unknown."""
        view = self._views[shard]
        # A field of another shard's overlay may be in the records of this shard.
        others = {name: field for name, field in self.fields.items() if name not in view.owners}
        own_names = ((view.before(name), field) for name, field in others.items())
        more = [field.with_name(n) for n, field in own_names if n and n not in settled.names]
        return [*settled, *more]

    def _own_fields(self, shard: int, given: pa.Schema, path: str) -> list[pa.Field]:
        """The fields to read from a shard, under its own names, for a schema of visible fields."""
        own = ((self._own_name(shard, field.name, path), field) for field in given)
        return [field.with_name(name) for name, field in own if name]

    def _own_name(self, shard: int, name: str, path: str) -> str | None:
        """The shard's own name of a visible field; None if an overlay has it.

        Raises:
            SchemaError: the field was dropped or renamed.
        """
        if name in self._views[shard].owners:
            return None
        before = self._views[shard].before(name)
        if before is None and name not in self.fields:
            message = "an overlay dropped or renamed this field"
            hint = "open(..., overlays=False); penstock fields list shows the overlays"
            raise SchemaError(message, file=path, field=name, hint=hint)
        return before

    def _without_missing(
        self, fmt: Format, source: Source, options: Options, schema: pa.Schema
    ) -> Reader:
        """Open a shard with a schema. Leave out fields that the shard lacks and overlays of other shards have."""
        is_whole = options.schema is not None and options.retyped is None
        opens = open_with_nulls if is_whole else open_shard
        while True:
            try:
                return opens(fmt, source, replace(options, schema=schema))
            except SchemaError as error:
                rest = [field for field in schema if field.name != error.field]
                shown = self._views[0].after(error.field) if error.field else None
                if shown not in self.fields or len(rest) == len(schema):
                    raise
                schema = pa.schema(rest, schema.metadata)

    def stale(
        self, shard: int, base: Reader, source: Source, *, counted: bool
    ) -> StaleIndexError | None:
        """The error for the first overlay that was made for another state of the shard. With `counted`, also compare
        the number of records."""
        if self._is_compared or not self._shards[shard]:
            return None
        tag = source.tag
        made_for = [overlay.identity.tag for overlay in self._shards[shard]]
        if tag and all(one == tag for one in made_for):
            return None  # the object that the overlays were made for
        identity = identity_of(base, source, count=counted)
        for overlay in self._shards[shard]:
            made_for = overlay.identity
            if not identity.fits(made_for):
                return StaleIndexError(
                    f"the overlay {overlay.name!r} was made for another state of this file",
                    file=source.path,
                    expected=f"{made_for.num_records} records in {made_for.num_bytes} bytes, "
                    f"{made_for.digest}",
                    found=f"{identity.num_records} records in {identity.num_bytes} bytes, "
                    f"{identity.digest}",
                    hint=_without(source.path, overlay),
                )
        return None

    def has_any_in(self, place: Place) -> bool:
        """Whether any of the shards has an overlay in this place."""
        return any(overlay.place == place for found in self._shards for overlay in found)

    def __bool__(self) -> bool:
        return any(self._shards)


def _without(path: str, overlay: Overlay) -> str:
    return f"{removal(path, overlay.name, overlay.place.folder)}, or open(..., overlays=False)"
