"""The format that docs/architecture.md shows is the one here, and it does what the page says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixed_size import FixedSizeFormat

import penstock as ps
from penstock import formats
from penstock.verbs.overlays import write_overlay

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "architecture.md"
VALUES = [bytes([n % 256, n // 256]) for n in range(10_000)]


@pytest.fixture
def numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, FixedSizeFormat()))
    path = tmp_path / "numbers.fixd"
    column = pa.array(VALUES, pa.binary(2))
    ps.write(pa.table({"record": column}), path, index=False)
    return path


def test_the_page_shows_the_format_as_it_is() -> None:
    assert (HERE / "fixed_size.py").read_text("utf-8") in PAGE.read_text("utf-8")


def test_scan_and_take_agree(numbers: Path) -> None:
    ds = ps.open(numbers)
    assert ds.shards[0].format == "fixedsize"
    assert len(ds) == len(VALUES)
    assert pa.table(ds).column("record").to_pylist() == VALUES
    asked = [9_999, 0, 4096, 4095, 4096]
    assert ds.take(asked).column("record").to_pylist() == [VALUES[n] for n in asked]


def test_a_cut_file_is_located(numbers: Path) -> None:
    numbers.write_bytes(numbers.read_bytes()[:-1])
    with pytest.raises(ps.TruncatedError) as caught:
        ps.open(numbers)
    assert (caught.value.record, caught.value.byte) == (9_999, 8 + 2 * 9_999)


def test_fields_are_kept_beside_it(numbers: Path) -> None:
    ds = ps.open(numbers)
    ranks = pa.record_batch({"rank": range(len(VALUES), 0, -1)})
    write_overlay(ds, "rank", ranks.schema, lambda shard: [ranks])
    ds = ps.open(numbers)
    table = pa.table(ds)
    assert table.column("record").to_pylist() == VALUES
    assert table.column("rank").to_pylist() == ranks.column(0).to_pylist()
    asked = [9_999, 0, 4096, 4095, 4096]
    for columns in (["rank", "record"], ["rank"], ["record"], []):
        for damage in ("error", "skip"):
            taken = ps.open(numbers, columns=columns, damage=damage).take(asked)
            assert taken.num_rows == len(asked)
            if columns:
                assert taken.to_pylist() == table.select(columns).take(asked).to_pylist()
    numbers.write_bytes(numbers.read_bytes() + b"ab")
    with pytest.raises(ps.StaleIndexError):
        ps.open(numbers)
