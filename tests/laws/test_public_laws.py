"""The laws of `penstock.testing`, which plug-ins run, hold for every format of penstock that is a file."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from held import FILES, held

from penstock.contract.format import Format
from penstock.testing import FormatLaws
from places import Place, at

LAWS = (
    "a_truncated_file_is_found",
    "lost_records_are_counted",
    "decode_returns_the_records_in_the_order_asked",
    "the_writer_counts_its_bytes",
    "a_reader_says_facts_of_the_right_types",
    "edge_values_are_kept_or_refused",
    "a_file_cut_in_its_last_record_loses_only_that",
)


IN_PLACE = ("records_are_appended",)
"""Laws of what no object store can do."""
ALL = [
    name.removeprefix("test_")
    for name in dir(FormatLaws)
    if name.startswith("test_") and name.removeprefix("test_") not in IN_PLACE
]


def check(fmt: Format, law: str, place: Any) -> None:
    class Laws(FormatLaws):
        format = fmt.info.name

        def at(self, path: Any) -> Any:
            return at(path)

        def table(self, num_records: int) -> pa.Table:
            return held(fmt).table(min(num_records, 4000))

        def edges(self, field: pa.Field) -> list[Any]:
            is_recognised = fmt.info.name == "recordio" and field.name == "image"
            return [] if is_recognised else super().edges(field)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        test = getattr(Laws(), f"test_{law}")
        test(*[place] * bool(inspect.signature(test).parameters))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("fmt", FILES, ids=lambda fmt: fmt.info.name)
def test_the_law_holds(fmt: Format, law: str, tmp_path: Path) -> None:
    check(fmt, law, tmp_path)


@pytest.mark.stress
@pytest.mark.parametrize("law", ALL)
@pytest.mark.parametrize("fmt", FILES, ids=lambda fmt: fmt.info.name)
def test_the_law_holds_for_objects(fmt: Format, law: str, objects: Place) -> None:
    check(fmt, law, objects)
