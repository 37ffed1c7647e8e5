"""The programs of docs/guide/clusters.md, with the engines that are in an environment of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import penstock as ps
from reading import ROOT

pytestmark = pytest.mark.stress

ENGINES = os.environ.get("PENSTOCK_ENGINES", str(ROOT / ".venv-engines" / "bin" / "python"))
PAGE = (ROOT / "docs" / "guide" / "clusters.md").read_text("utf-8")
PROGRAMS = re.findall(
    r"^## (\w.*?) ([\d.]+)\n.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL
)
PRINTED = ("5000 of 10000\n", "(True, 5000)\n(False, 5000)\n", "(False, 5000)\n(True, 5000)\n")


def test_the_page_has_the_engines() -> None:
    assert [name for name, _, _ in PROGRAMS] == ["Spark", "Dask", "Apache Beam", "Daft"]


@pytest.mark.parametrize("program", [row[2] for row in PROGRAMS], ids=[row[0] for row in PROGRAMS])
def test_an_engine_reads_a_dataset_by_its_tasks(program: str, tmp_path: Path) -> None:
    if not Path(ENGINES).exists():
        pytest.fail(f"{ENGINES} is not there; `make .venv-engines/built` makes it")
    assert sum(bool(line) for line in program.splitlines()) <= 20
    ps.write({"id": range(10_000)}, tmp_path / "train.tfrecord", num_shards=4)
    (tmp_path / "program.py").write_text(program)
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(ps.__file__).parents[1]),
        "PYSPARK_PYTHON": ENGINES,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "DAFT_ANALYTICS_ENABLED": "0",
        "DO_NOT_TRACK": "true",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [ENGINES, "program.py"],
        cwd=tmp_path,
        env=env,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout in PRINTED, done.stderr[-5000:]


def test_the_page_names_the_versions_that_are_installed() -> None:
    code = "import importlib.metadata as m, json, sys; print(json.dumps([m.version(n) for n in sys.argv[1:]]))"
    packages = ["pyspark", "dask", "apache-beam", "daft"]
    done = subprocess.run([ENGINES, "-c", code, *packages], check=True, capture_output=True)
    assert json.loads(done.stdout) == [version for _, version, _ in PROGRAMS]
