"""Checks for the regions of any file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import penstock as ps


def all_regions(regions: Iterable[ps.Region]) -> Iterator[ps.Region]:
    for region in regions:
        yield region
        yield from all_regions(region.children)


def check_regions(found: ps.Layout) -> None:
    """Check that the regions cover the file without gaps or overlaps, and that the children of each region are inside
    it, in order."""
    at = 0
    for region in found.regions:
        if not region.within:
            assert region.start == at, f"{region.name} in {found.path}"
            assert region.length >= 0, region.name
            at = region.end
    assert at == found.num_bytes, found.path
    for region in all_regions(found.regions):
        at = region.start
        for child in region.children:
            if child.within == region.within:
                assert at <= child.start <= child.end <= region.end, f"{child.name} in {found.path}"
                at = child.end
    assert len(str(found).split("\n")) == 1 + len(list(all_regions(found.regions)))
