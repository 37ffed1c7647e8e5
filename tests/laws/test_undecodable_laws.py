"""One record cannot be decoded: every verb reports it by the same rule, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from undecodable import BAD, CASES, NUM_RECORDS, Make

import penstock as ps
from penstock.formats import FORMATS

per_case = pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param(fmt.info.name, make, id=f"{fmt.info.name} {case}")
        for fmt in FORMATS
        for case, make in CASES[fmt.info.name].items()
    ],
)


def rows(dataset: ps.Dataset) -> list[dict[str, Any]]:
    found = [row for batch in dataset.scan() for row in batch.to_pylist()]
    for row in found:
        row.pop("__url__", None)
    return found


@per_case
def test_a_record_that_cannot_be_decoded_is_an_error_a_finding_and_left_out(
    name: str, make: Make, tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(ps.FormatError) as caught:
        rows(ps.open(path, index="never"))
    assert caught.value.record == BAD
    assert 'damage="skip"' in str(caught.value.hint)

    skipping = ps.open(path, index="never", damage="skip")
    kept = rows(skipping)
    assert len(kept) == NUM_RECORDS - 1
    assert [region.num_records for region in skipping.damage] == [1]

    report = ps.verify(path, index="never")
    assert [(f.record, f.num_records) for f in report.findings] == [(BAD, 1)]
    assert (report.ok, report.num_records, report.num_lost) == (False, NUM_RECORDS - 1, 1)


@per_case
def test_repair_leaves_out_only_records_that_cannot_be_decoded(
    name: str, make: Make, tmp_path: Path
) -> None:
    if name in ("arrayrecord", "mds"):
        pytest.skip("is read and not written")
    path = make(tmp_path)
    report = ps.repair(path, into=tmp_path / f"whole{path.suffix}", index=False)
    assert (report.num_records, len(report.findings)) == (NUM_RECORDS - 1, 1)
    wanted = rows(ps.open(path, index="never", damage="skip"))
    assert rows(ps.open(tmp_path / f"whole{path.suffix}", index="never")) == wanted
    assert ps.verify(tmp_path / f"whole{path.suffix}", index="never").ok


@per_case
def test_a_record_that_cannot_be_decoded_affects_no_other_in_a_take(
    name: str, make: Make, tmp_path: Path
) -> None:
    path = make(tmp_path)
    dataset = ps.open(path, index="never")
    around = [BAD + 1, 3, BAD - 1, BAD + 2]
    assert dataset.take(around).num_rows == len(around)
    with pytest.raises(ps.FormatError) as caught:
        dataset.take([BAD - 1, BAD])
    assert caught.value.record == BAD
