"""`layout` shows which bytes of a file are what."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock import describe, formats
from penstock.contract.format import Options
from penstock.contract.regions import DAMAGE, DIFFERS, Region, damaged, in_order, padding
from penstock.errors import PenstockError, RecordIndexError, shown
from penstock.limits import Limits, checked_count, limits_from
from penstock.manifests.names import expand, storage_of
from penstock.storage.base import Source, Storage

_MOST_NAME = 40
_UNKNOWN = "not described"
_HEADINGS = ("offset", "hex", "length", "what", "value")


@dataclass(frozen=True, slots=True)
class Layout:
    """The regions of a file, in order. Printed, it is a table.

    The regions whose offsets are positions in the file follow one another without gaps, from its first byte to its
    last. Other regions, such as those in inflated bytes, have a `within`.
    """

    path: str
    format: str
    num_bytes: int
    record: int
    regions: tuple[Region, ...]

    @property
    def ok(self) -> bool:
        """Whether all checksums that were computed match the stored ones, and no region shown is damaged."""
        return not any(one.state in (DIFFERS, DAMAGE) for _, one in walk(self.regions))

    def to_dict(self) -> dict[str, Any]:
        """The layout for JSON."""
        return {
            "path": self.path,
            "format": self.format,
            "num_bytes": self.num_bytes,
            "record": self.record,
            "ok": self.ok,
            "regions": [region.to_dict() for region in self.regions],
        }

    def lines(self) -> list[tuple[str, str]]:
        """The lines of the table, each with the state of its region."""
        cells = [_HEADINGS, *(_cells(depth, one) for depth, one in walk(self.regions))]
        widths = [max(len(row[column]) for row in cells) for column in range(4)]
        states = ["", *(one.state for _, one in walk(self.regions))]
        return [(_line(row, widths), state) for row, state in zip(cells, states, strict=True)]

    def __str__(self) -> str:
        return "\n".join(line for line, _ in self.lines())


def walk(regions: Iterable[Region], depth: int = 0) -> Iterator[tuple[int, Region]]:
    """Each region before its children, with its depth."""
    for region in regions:
        yield depth, region
        yield from walk(region.children, depth + 1)


def _cells(depth: int, region: Region) -> tuple[str, ...]:
    name = describe.escape(region.name)
    name = name if len(name) <= _MOST_NAME else name[: _MOST_NAME - 1] + describe.ELLIPSIS
    value = "" if region.value is None else str(region.value)
    told = describe.escape("  ".join(filter(None, (value, region.note))))
    # A plus marks an offset in other bytes than those of the file.
    offset = f"{'+' if region.within else ''}{region.start}"
    return offset, f"{region.start:#x}", str(region.length), "  " * depth + name, told


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    numbers = (cell.rjust(width) for cell, width in zip(row[:3], widths, strict=False))
    return "  ".join((*numbers, row[3].ljust(widths[3]), row[4])).rstrip()


def layout(
    source: Any,
    *,
    record: int = 0,
    format: str | None = None,
    limits: Limits | dict[str, int] | None = None,
    storage: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    **format_options: Any,
) -> Layout:
    """Show which bytes of a file are what: headers, tables, footers, and the parts of one record.

    Only headers, tables, the one record, and up to 64 MiB after it are read. In a format in which each record leads to
    the next, the records before it are also read, unless there is an index. The checksums of the bytes that are read
    are verified; `verify` checks the whole file. In a damaged file, the regions end at the damage, unless the format
    allows reading to continue after it.

    Args:
        source: the path of one file, or of a folder that is one shard.
        record: the number of the record whose parts are shown.
        format: the format's name; None detects it from the content.
        limits: limits on the memory that the file may request, as for `penstock.open`.
        storage: the storage of the file; None for this machine.
        storage_options: as for `open`.
        format_options: options of the format, as for `penstock.open`.

    Returns:
        Layout.

    Raises:
        RecordIndexError: the file has no such record.
        ValueError: `source` names several files.

    Example:
        >>> import penstock as ps
        >>> _ = ps.write({"id": [7]}, "one.tfrecord", overwrite=True)
        >>> found = ps.layout("one.tfrecord")
        >>> found.regions[0].children[0]
        Region(start=0, length=8, name='length', value=15, note='', children=(), state='', within='')
        >>> found.ok
        True
    """
    record = checked_count("record", record, 0)
    store = storage_of(source, storage, storage_options)
    path = _one_path(source, store)
    options = Options(
        limits=limits_from(limits),
        beside=partial(_beside, store, path),
        format_options=format_options,
    )
    opened = store.source(path)
    try:
        fmt = formats.of(opened) if format is None else formats.by_name(format)
        fmt.own_options(options)  # raises for an unknown option
        found = complete(fmt.layout(opened, record, options), opened)
        return Layout(shown(path), fmt.info.name, opened.size, record, tuple(found))
    except PenstockError as error:
        raise error.at(file=shown(path)) from None
    finally:
        opened.close()


def _one_path(source: Any, storage: Storage) -> str:
    paths = expand(source, storage).paths
    if len(paths) != 1:
        raise ValueError(f"layout shows one file, and {os.fspath(source)} names {len(paths)}")
    return paths[0]


def _beside(storage: Storage, path: str, name: str) -> Source | None:
    other = os.path.join(os.path.dirname(path), name)
    return storage.source(other) if storage.exists(other) else None


def complete(found: Iterator[Region], source: Source) -> Iterator[Region]:
    """Complete the regions of a file: add the bytes between them as regions, and damage as the last region."""
    at = 0
    has_damage = False
    try:
        for region in in_order(found, 0, source.size, _UNKNOWN):
            has_damage |= any(one.state == DAMAGE for _, one in walk([region]))
            at = at if region.within else region.end
            yield region
    except RecordIndexError:
        # Damage explains why the record is missing.
        if not has_damage:
            raise
        yield from padding(at, source.size, _UNKNOWN)
    except PenstockError as error:
        damage = damaged(error, at, source.size)
        yield from padding(at, damage.start, _UNKNOWN)
        yield damage
