"""The table of what penstock.tf covers must equal the result of a comparison with TensorFlow."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
import tensorflow  # noqa: ICN001 -- the full name shows that it is TensorFlow itself

from reading import ROOT

COVERAGE: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "coverage.py"))


def test_the_table_of_symbols_is_what_tensorflow_and_penstock_have() -> None:
    text = COVERAGE["PAGE"].read_text()
    version = re.search(r"Compared with TensorFlow ([0-9.]+)\.", text)
    assert version is not None
    if version[1] != tensorflow.__version__:
        pytest.skip(f"the table is of TensorFlow {version[1]}; here is {tensorflow.__version__}")
    assert text == COVERAGE["renewed"](text, tensorflow), "run: python docs/coverage.py"
