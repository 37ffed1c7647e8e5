"""The laws of all formats, as tests, in the order in which pytest runs them: what is written reads back, also values at
the edges of their types; then damage."""

from __future__ import annotations

from penstock.testing._damage import DamageLaws


class FormatLaws(DamageLaws):
    """Tests of one format. Each method is a law; pytest passes it an empty folder."""
