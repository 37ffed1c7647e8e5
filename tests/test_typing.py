"""Type checkers detect misspelt keywords and wrong choices before a program runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import formats
from penstock.contract.keywords import ConvertOptions, OpenOptions, WriteOptions
from reading import ROOT

PROGRAM = """\
import numpy as np
import penstock as ps

ds = ps.open("a.tfrecord", checksums="headers", infer_records="all")
record: dict[str, object] = ds[np.int64(3)]
part = ds[2:5].num_rows + ds.take([1]).num_rows
names: list[str] = ds.schema.names
loader = ps.Loader(ds, 8, uneven="pad", rank="auto", ragged={"tokens": "pad"})
ps.write({"id": [1]}, "b.parquet", level=3, row_group_records=100)
ps.convert(ds, "c.beton", image_mode="smart", smart_threshold=100)

ps.open("a.tfrecord", checksum="headers")  # wrong
ps.open("a.tfrecord", damage="salvage")  # wrong
ps.open("a.tfrecord", infer_record="all")  # wrong
ps.Loader(ds, 8, uneven="padded")  # wrong
ps.Loader(ds, 8, shufle=True)  # wrong
ps.write({"id": [1]}, "b.parquet", row_group_record=100)  # wrong
ps.write({"id": [1]}, "b.parquet", overwrit=True)  # wrong
ps.convert(ds, "c.beton", smart_treshold=100)  # wrong
ds[3].num_rows  # wrong
ds[2:5]["id"].no_such_method  # pyarrow has no types, so nothing is known of columns
"""


def options_of(kind: str) -> set[str]:
    formats.load()
    return {name for one in formats.FORMATS for name in getattr(one, kind).__dataclass_fields__}


@pytest.mark.parametrize(
    ("typed", "kind", "keywords"),
    [
        (OpenOptions, "read_options", set[str]()),
        (WriteOptions, "write_options", {"compression", "exact"}),
        (ConvertOptions, "write_options", {"compression", "exact", "seed", "shuffle"}),
    ],
)
def test_the_keywords_are_the_options_of_the_formats(
    typed: Any, kind: str, keywords: set[str]
) -> None:
    assert (
        set(typed.__annotations__) | set(getattr(typed, "__base_keys__", ()))
        == options_of(kind) - keywords
    )


def test_pyright_accepts_the_formats_that_the_pages_show(tmp_path: Path) -> None:
    checker = shutil.which("pyright", path=str(Path(sys.executable).parent))
    assert checker is not None, "make tools installs it"
    for name in ("block_format.py", "fixed_size.py", "framed_lines.py"):
        shutil.copy(ROOT / "tests" / "docs" / name, tmp_path)
    page = (ROOT / "docs" / "guide" / "new-format.md").read_text("utf-8")
    for name, code in re.findall(
        r"^```python\n# (\w+\.py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    ):
        (tmp_path / name).write_text(code)
    settings = {"typeCheckingMode": "standard", "stubPath": str(ROOT / "typings")}
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps(settings | {"extraPaths": [str(ROOT / "python")]})
    )
    command = [checker, "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("0 errors"), done.stdout


def test_pyright_finds_misspelt_keywords(tmp_path: Path) -> None:
    checker = shutil.which("pyright", path=str(Path(sys.executable).parent))
    assert checker is not None, "make tools installs it"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [checker, "--pythonpath", sys.executable, str(program)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    found = {int(line) for line in re.findall(r"program\.py:(\d+):\d+ - error", done.stdout)}
    wrong = [n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")]
    assert found == set(wrong), done.stdout
