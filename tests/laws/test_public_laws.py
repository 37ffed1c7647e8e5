"""The laws of `penstock.testing`, which plug-ins run, hold for every format of penstock that is a file."""

from __future__ import annotations

import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from held import FILES, held

from penstock.contract.format import Format
from penstock.testing import FormatLaws

LAWS = (
    "a_truncated_file_is_found",
    "lost_records_are_counted",
    "decode_returns_the_records_in_the_order_asked",
    "the_writer_counts_its_bytes",
    "a_reader_says_facts_of_the_right_types",
)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("fmt", FILES, ids=lambda fmt: fmt.info.name)
def test_the_law_holds(fmt: Format, law: str, tmp_path: Path) -> None:
    class Laws(FormatLaws):
        format = fmt.info.name

        def table(self, num_records: int) -> pa.Table:
            return held(fmt).table(min(num_records, 4000))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(Laws(), f"test_{law}")(tmp_path)
