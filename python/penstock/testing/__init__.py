"""Tests of the laws that every format obeys, for a format of your own.

A package that adds a format by the entry point group `penstock.formats` has one test file:

    from penstock.testing import FormatLaws

    class TestToy(FormatLaws):
        format = "toy"

pytest finds the tests of the class. If the format cannot hold columns of every kind, override `table`.
"""

from penstock.testing._laws import FormatLaws

__all__ = ["FormatLaws"]
