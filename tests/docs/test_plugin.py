"""A format in a separate package: once installed, penstock finds it by its entry point, and every verb works with
it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import FormatLaws

HERE = Path(__file__).parent
PROJECT = """
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "penstock-fixedsize"
version = "1.0"

[project.entry-points."penstock.formats"]
fixedsize = "fixed_size:FixedSizeFormat"

[tool.setuptools]
py-modules = ["fixed_size"]
"""
USE = """
import pyarrow as pa
import penstock as ps

values = [bytes([n % 256, n // 256]) for n in range(9000)]
ps.write(pa.table({"record": pa.array(values, pa.binary(2))}), "a.fixd")
ds = ps.open("a.fixd")
assert ds.shards[0].format == "fixedsize"
assert ds.take([8999, 0]).column(0).to_pylist() == [values[8999], values[0]]
assert pa.table(ds).column(0).to_pylist() == values
ps.convert("a.fixd", "b.parquet")
assert len(ps.open("b.parquet")) == 9000
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    package, target = folder / "package", folder / "site"
    package.mkdir()
    shutil.copy(HERE / "fixed_size.py", package)
    (package / "pyproject.toml").write_text(PROJECT)
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    subprocess.run([*install, "--target", target, package], check=True)
    return target


def finding(site: Path) -> dict[str, str]:
    """The environment in which programs find the packages of a folder."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_an_installed_format_has_every_verb(site: Path, tmp_path: Path) -> None:
    env = finding(site)
    run = [sys.executable, "-W", "error", "-c", USE]
    subprocess.run(run, check=True, cwd=tmp_path, env=env)
    verify = [sys.executable, "-m", "penstock", "verify", "a.fixd"]
    done = subprocess.run(
        verify, check=False, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "9,000" in done.stdout


LAWS = """
import pyarrow as pa
from penstock.testing import FormatLaws


class TestFixedSize(FormatLaws):
    format = "fixedsize"

    def table(self, num_records):
        values = [n.to_bytes(2, "little") for n in range(num_records)]
        return pa.table({"record": pa.array(values, pa.binary(2))})
"""


def test_an_installed_format_passes_the_laws(site: Path, tmp_path: Path) -> None:
    env = finding(site)
    (tmp_path / "test_laws.py").write_text(LAWS)
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_laws.py"]
    done = subprocess.run(run, check=False, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    laws = [name for name in dir(FormatLaws) if name.startswith("test_")]
    assert f"{len(laws)} passed" in done.stdout


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("nowhere:Format", "No module named 'nowhere'"),
        ("fixed_size:HEAD", "not a penstock.contract.format.Format"),
        (
            "penstock.formats.npy.format:NpyFormat",
            "penstock.formats.npy.format.NpyFormat and penstock both have a format 'npy'",
        ),
    ],
)
def test_a_format_that_cannot_be_loaded_is_left_out(
    entry: str, reason: str, site: Path, tmp_path: Path
) -> None:
    # The package as it is installed, with another entry point.
    broken = shutil.copytree(site, tmp_path / "site")
    [entries] = broken.glob("*.dist-info/entry_points.txt")
    entries.write_text(f"[penstock.formats]\nbroken = {entry}\n")
    env = finding(broken)
    use = "import penstock as ps; ps.write({'x': [1]}, 'a.npz'); print(len(ps.open('a.npz')))"
    run = [sys.executable, "-c", use]
    done = subprocess.run(run, check=False, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout == "1\n"
    assert "the format 'broken'" in done.stderr
    assert reason in done.stderr
