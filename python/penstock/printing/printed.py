"""The base class of results that print as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_SUMMARY = 100


class Printed:
    """A result that `print` and notebooks show as tables, as the command line does. Its `repr` is one line.

    A subclass defines `_page` and `_summary`. rich, which draws the page, is imported only when it is printed.
    """

    __slots__ = ()

    def _page(self) -> list[RenderableType]:
        """The texts and tables of the page, from top to bottom."""
        raise NotImplementedError

    def _summary(self) -> str:
        """A few words about the result, for `repr`."""
        raise NotImplementedError

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        return Group(*self._page())

    def __str__(self) -> str:
        from penstock.printing import tables

        return tables.plain(self)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"

    def __repr__(self) -> str:
        from penstock import describe

        return f"<penstock.{type(self).__name__}: {describe.cut(self._summary(), _MOST_SUMMARY)}>"
