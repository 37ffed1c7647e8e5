"""What a writer did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import describe
from penstock.printing.printed import Printed


@dataclass(frozen=True, slots=True, repr=False)
class Summary(Printed):
    """The result of a writer: the files, and their totals. Bytes are those on disk. `print` shows a few lines."""

    paths: tuple[str, ...]
    num_records: int
    num_bytes: int
    notes: tuple[str, ...] = ()
    """Changes to values that the format could not hold exactly, such as float64 rounded to float32. Also names of
    shards that do not sort in the order of the records. From `dedupe` also what was compared, and how many records
    were left out."""
    text_columns: tuple[str, ...] = ()
    """From `convert`: columns that were written as bytes, although all their values are text. `text=` of `convert` would
    write them as strings."""

    def line(self) -> str:
        """Describe in one line what was written."""
        where = describe.escape(self.paths[0]) if self.paths else "nothing written"
        if len(self.paths) > 1:
            where = f"{len(self.paths)} files, {where} …"
        return f"{describe.records(self.num_records)}, {describe.size(self.num_bytes)}: {where}"

    def _page(self) -> list[Any]:
        from rich.text import Text

        return [Text(self.line()), *(Text(describe.escape(f"note: {note}")) for note in self.notes)]

    def _summary(self) -> str:
        notes = f" ({len(self.notes)} notes)" if self.notes else ""
        return self.line() + notes
