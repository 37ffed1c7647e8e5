"""`layout` for every registered format: the regions of a written file cover it without gaps or overlaps, and all
checksums are right."""

from __future__ import annotations

from typing import Any

import pytest
from held import WRITABLE, small_table

import penstock as ps
from layouts import all_regions, check_regions
from penstock.contract.format import Format
from penstock.verbs.write.write import write
from places import Place

# Between the other regions are HDF5's own tables, whose positions libhdf5 does not report.
NOT_DESCRIBED = ("hdf5",)


@pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)
def test_regions_tile_a_written_file(fmt: Format, place: Place) -> None:
    options: dict[str, Any] = {"format": fmt.info.name, "index": False}
    table = small_table(fmt)
    [path] = write(table, str(place / "a") + fmt.info.extensions[0], **options).paths
    for record in (0, 5, 11):
        found = ps.layout(path, record=record)
        assert found.format == fmt.info.name
        assert found.ok, found
        check_regions(found)
        names = [region.name for region in all_regions(found.regions)]
        assert "not described" not in names or fmt.info.name in NOT_DESCRIBED
    with pytest.raises(ps.RecordIndexError):
        ps.layout(path, record=12)


@pytest.mark.parametrize("fmt", WRITABLE, ids=lambda fmt: fmt.info.name)
def test_layout_leaves_the_folder_as_it_was(fmt: Format, place: Place) -> None:
    [path] = write(
        small_table(fmt),
        str(place / "a") + fmt.info.extensions[0],
        format=fmt.info.name,
        index=False,
    ).paths
    before = sorted(str(one) for one in place.rglob("*"))
    ps.layout(path)
    assert sorted(str(one) for one in place.rglob("*")) == before
