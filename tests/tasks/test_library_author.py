"""A library author adds a format. The package in the guide is installed and used, and passes the laws."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from penstock.testing import FormatLaws
from reading import ROOT

PAGE = (ROOT / "docs" / "guide" / "new-format.md").read_text("utf-8")
PROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "penstock-notes"
version = "1.0"

[tool.setuptools]
py-modules = ["notes_format"]

"""
USE = """
import penstock as ps

notes = [b"note %d" % n for n in range(50_000)]
ps.write({"note": notes[:-1]}, "a.nt", num_shards=2)
ps.append({"note": notes[-1:]}, "a@2.nt", shard="last")
ds = ps.open("a@2.nt")
assert ds[40_000] == {"note": b"note 40000"}
assert ds.count("len(note) == 6") == 10
loader = ps.Loader(ds, 1000, order=ps.Shuffled(seed=0))
assert sorted(n for batch in loader for n in batch["note"]) == sorted(notes)
ps.convert("a@2.nt", "a.parquet")
assert ps.diff("a@2.nt", "a.parquet").equal
[entry] = [one for one in ps.abilities() if one.format == "note"]
assert (entry.package, entry.append) == ("penstock-notes 1.0", True)
"""


def test_the_format_of_the_guide_is_installed_used_and_lawful(tmp_path: Path) -> None:
    python = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [toml] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    package, site, work = (tmp_path / name for name in ("package", "site", "work"))
    package.mkdir()
    work.mkdir()
    for name, text in python:
        (package / name).write_text(text, "utf-8")
    (package / "pyproject.toml").write_text(PROJECT + toml, "utf-8")
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--python", sys.executable]
    subprocess.run([*install, "--target", site, package], check=True)

    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    run("-W", "error", "-c", USE)
    laws = sum(name.startswith("test_") for name in dir(FormatLaws))
    tests = str(package / "test_notes_format.py")
    assert f"{laws} passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", tests)
