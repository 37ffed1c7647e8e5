"""`import penstock` is fast and imports nothing that it does not need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reading import run_python

FORBIDDEN = (
    "tensorflow",
    "google.protobuf",
    "torch",
    "jax",
    "pandas",
    "click",
    "rich",
    "polars",
    "duckdb",
)

IMPORT = """
import json, sys, time
start = time.perf_counter()
import numpy, pyarrow
middle = time.perf_counter()
import penstock
end = time.perf_counter()
print(json.dumps({"own": end - middle, "all": end - start, "modules": sorted(sys.modules)}))
"""


def test_import_brings_no_framework_and_takes_no_second() -> None:
    best = min((json.loads(run_python(IMPORT)) for _ in range(3)), key=lambda run: run["own"])
    brought = [name for name in FORBIDDEN if name in best["modules"]]
    assert not brought
    print(f"import penstock: {1000 * best['own']:.0f} ms above numpy and pyarrow")
    assert best["own"] < 1.0, "a second above numpy and pyarrow is far beyond 50 ms"


def test_public_names_are_sorted_and_exist() -> None:
    import penstock

    assert len(set(penstock.__all__)) == len(penstock.__all__)
    assert all(hasattr(penstock, name) for name in penstock.__all__)
    assert list(penstock.__all__) == sorted(penstock.__all__)


WRITE = "import sys, penstock as ps; ps.write({'id': range(100)}, sys.argv[1], index=False)"
READ = """
import sys
import penstock as ps
for _ in range(2):  # without an index, then with it
    ds = ps.open(sys.argv[1])
    assert sum(batch.num_rows for batch in ds.scan()) == 100
    assert ds.take([5, 3]).num_rows == 2
    assert sum(len(batch["id"]) for batch in ps.Loader(ds, 10)) == 100
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("name", ["a.tfrecord", "a.parquet", "a.tar", "a.beton", "a.msgpack"])
def test_reading_does_not_wait_for_pandas_to_be_imported(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name)
    run_python(WRITE, path)
    assert run_python(READ, path).strip() == "False"
