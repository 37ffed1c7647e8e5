"""The format that docs/architecture.md shows is the one here, and it does what the page says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from fixed_size import FixedSizeFormat

import penstock as ps
from penstock import formats

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
