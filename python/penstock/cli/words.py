"""Types of words on the command line: paths, and sizes in bytes."""

from __future__ import annotations

import re
from typing import Any

import click

_SIZE = re.compile(r"(\d+)\s*(|[kmgt]i?b?|b)", re.IGNORECASE)


def size_of(text: str) -> int | None:
    """Return the bytes of a size such as 3MB or 4GiB, in which k, M, G and T are powers of 1024. None if it is none."""
    size = _SIZE.fullmatch(text)
    if size is None:
        return None
    return int(size[1]) << 10 * " kmgt".index(size[2][:1].lower().strip("b") or " ")


class _Size(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  generic from click 8.2
    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        size = value if isinstance(value, int) else size_of(value)
        if not size:
            self.fail(f"{value!r} is not a size above 0, such as 3000000 or 64MiB", param, ctx)
        return size


class _Path(click.Path):
    """A path, which must not be the `-` of programs that read and write pipes."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "-":
            self.fail(
                "'-' does not mean stdin or stdout here, because penstock reads files at any position, and gives "
                "new files their names when they are complete\n"
                "  try: a temporary file; ./- is a file of this name",
                param,
                ctx,
            )
        return super().convert(value, param, ctx)


PATH = _Path()
SIZE = _Size()
