"""`ps.info` says which checksums the files have, where a format leaves them to the writer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps


@pytest.mark.parametrize("with_checksums", [True, False])
@pytest.mark.parametrize("values", [[1, 2, 3], ["a", "b", "b"]])
def test_parquet_has_the_checksums_that_its_writer_stored(
    tmp_path: Path, with_checksums: bool, values: list[object]
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": values}), path, write_page_checksum=with_checksums)
    found = ps.info(path)
    assert found.shards[0].checksums == ("CRC-32 of each page" if with_checksums else "")
    line = next(line for line in str(found).splitlines() if line.startswith("checksums "))
    assert line.split()[-1] == ("page" if with_checksums else "none")


def test_files_of_one_format_may_differ(tmp_path: Path) -> None:
    for name, is_stored in (("a", True), ("b", False)):
        table = pa.table({"x": [1]})
        pq.write_table(table, tmp_path / f"{name}.parquet", write_page_checksum=is_stored)
    shown = str(ps.info(tmp_path / "*.parquet"))
    assert "parquet: CRC-32 of each page · parquet: none" in shown
    ps.write({"x": [1]}, tmp_path / "own.parquet")
    assert ps.info(tmp_path / "own.parquet").shards[0].checksums == "CRC-32 of each page"
