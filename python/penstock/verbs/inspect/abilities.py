"""`abilities` lists the formats and what each can do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock import describe, formats
from penstock.contract.format import Format
from penstock.framing.format import FramedFormat
from penstock.printing import tables
from penstock.printing.printed import Printed

Repair = Literal["record", "chunk", "none"]


@dataclass(frozen=True, slots=True)
class Ability:
    """What one format can do."""

    format: str
    extensions: tuple[str, ...]
    write: bool
    append: bool
    """Records can be added to the end of a file."""
    random_access: bool
    compressions: tuple[str, ...]
    memory_map: bool
    overlay: bool
    checksums: str
    """What the checksums in a file are; empty if it has none."""
    repair: Repair
    """What `repair` loses around one damaged byte: a record or a chunk of records, such as a row group. "none" if the
    format cannot be written."""
    index: bool
    """Whether an index is kept, because the file does not store the positions of its records."""
    package: str
    """The package that the format comes from, with its version if that is not penstock."""


@dataclass(frozen=True, slots=True, repr=False)
class Abilities(Printed):
    """The formats, in the order in which they are tried. Printed, they are a table."""

    formats: tuple[Ability, ...]

    def __iter__(self) -> Iterator[Ability]:
        return iter(self.formats)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"formats": [asdict(one) for one in self.formats]}

    def _page(self) -> list[Any]:
        shown = tables.table(
            "format", "files", "write", "append", "take", "repair", "checksums", "from"
        )
        for one in self.formats:
            shown.add_row(
                describe.escape(one.format),
                describe.escape(" ".join(one.extensions)),
                _mark(one.write),
                _mark(one.append),
                _mark(one.random_access),
                "–" if one.repair == "none" else f"by {one.repair}",
                describe.escape(one.checksums) or "–",
                describe.escape(one.package),
            )
        return [shown]

    def _summary(self) -> str:
        return f"{len(self.formats)} formats: {', '.join(one.format for one in self.formats)}"


def abilities() -> Abilities:
    """List the formats that are installed, and what each can do.

    These are the formats of penstock, those of other packages, and those that this program has registered. All can be
    read.

    Example:
        >>> import penstock as ps
        >>> found = {one.format: one for one in ps.abilities()}
        >>> found["tfrecord"].append, found["tfrecord"].repair, found["parquet"].repair
        (True, 'record', 'chunk')
        >>> found["tfrecord"].package
        'penstock'
    """
    return Abilities(tuple(ability_of(fmt) for fmt in formats.FORMATS))


def ability_of(fmt: Format) -> Ability:
    """Return what a format can do."""
    info = fmt.info
    return Ability(
        info.name,
        info.extensions,
        info.can_write,
        info.can_append,
        info.can_take,
        info.compressions,
        info.can_map,
        info.can_overlay,
        info.checksums or ("yes" if info.has_checksums else ""),
        _repair(fmt),
        isinstance(fmt, FramedFormat) or info.keeps_positions,
        formats.package_of(fmt),
    )


def _repair(fmt: Format) -> Repair:
    if not fmt.info.can_write:
        return "none"
    return "record" if isinstance(fmt, FramedFormat) or fmt.info.loses_one else "chunk"


def _mark(has: bool) -> str:
    return "yes" if has else "–"
