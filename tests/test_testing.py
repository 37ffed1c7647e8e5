"""`penstock.testing`: penstock's own formats satisfy the laws, and the laws reveal a faulty format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.testing import FormatLaws


class TestTfrecord(FormatLaws):
    format = "tfrecord"


class TestParquet(FormatLaws):
    format = "parquet"


class TestArrow(FormatLaws):
    format = "arrow"


class TestMsgpack(FormatLaws):
    format = "msgpack"


class TestNpz(FormatLaws):
    format = "npz"

    def table(self, num_records: int) -> pa.Table:
        return super().table(num_records).select(["id", "score"])


class Wrong(FormatLaws):
    format = "tfrecord"


def test_the_laws_find_a_reader_that_loses_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ps.Dataset, "to_table", _loses_the_last(ps.Dataset.to_table))
    with pytest.raises(AssertionError, match="999 records, not 1000"):
        Wrong().test_written_records_read_back(tmp_path)


def test_the_laws_find_an_error_that_is_not_of_penstock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(ps.Dataset, "to_table", broken)
    with pytest.raises(IndexError):
        Wrong().test_damaged_files_raise_errors_of_penstock(tmp_path)


def _loses_the_last(to_table: Any) -> Any:
    return lambda self, *rest, **more: to_table(self, *rest, **more).slice(0, 999)
