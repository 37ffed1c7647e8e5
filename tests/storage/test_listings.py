"""What an object store has listed answers for penstock's own files, and never for files that it did not list."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StorageError
from penstock.storage._listings import Listings, own_prefixes
from penstock.storage.hidden import SIDECAR_SUFFIX, hidden


def test_files_that_differ_in_their_numbers_are_listed_together() -> None:
    names = [f"s3://b/t/x-{n:05}-of-00050.tar" for n in range(50)]
    assert list(own_prefixes(names)) == ["s3://b/t/.x-000"]
    assert list(own_prefixes([*names, "s3://b/u/y.tar"])) == [
        "s3://b/t/.x-000",
        "s3://b/u/.y.tar.penstock",
    ]


def test_few_of_many_possible_names_are_listed_one_by_one() -> None:
    names = ["s3://b/x-000001.tar", "s3://b/x-523999.tar"]
    assert list(own_prefixes(names)) == [hidden(name, SIDECAR_SUFFIX) for name in names]
    assert list(own_prefixes(["s3://b/a.tar", "s3://b/c.tar"])) == [
        "s3://b/.a.tar.penstock",
        "s3://b/.c.tar.penstock",
    ]


def test_a_name_that_is_too_long_is_not_listed() -> None:
    assert list(own_prefixes([f"s3://b/{'x' * 250}.tar"])) == []


NAMES = st.text("ab1", min_size=1, max_size=3)


@given(st.sets(NAMES), st.sets(NAMES, max_size=3), NAMES)
def test_a_listing_says_what_it_has_and_nothing_else(
    there: set[str], prefixes: set[str], asked: str
) -> None:
    listings = Listings()
    for prefix in prefixes:
        found = sorted(name for name in there if name.startswith(prefix))
        listings.add(prefix, [(name, 1) for name in found])
    is_covered = any(asked.startswith(prefix) for prefix in prefixes)
    below = sorted(name for name in there if name.startswith(asked))
    assert listings.below(asked) == (below if is_covered else None)
    assert listings.lacks(asked) == (is_covered and asked not in there)
    listings.forget(asked)
    assert listings.below(asked) is None
    assert not listings.lacks(asked)


def test_a_listing_that_is_refused_says_nothing() -> None:
    listings = Listings()

    def refuse(prefix: str) -> None:
        error = StorageError("the store refused the request", file=prefix)
        error.errno = errno.EACCES
        raise error

    listings.fill(listings.missing(["s3://b/x.tar"]), refuse, 1)
    assert listings.missing(["s3://b/x.tar"]) == []
    assert listings.below("s3://b/.x.tar.penstock-fields/") == []
    assert not listings.lacks("s3://b/.x.tar.penstock")

    def fail(prefix: str) -> None:
        raise StorageError("the store failed", file=prefix)

    with pytest.raises(StorageError):
        listings.fill(listings.missing(["s3://b/y.tar"]), fail, 1)
