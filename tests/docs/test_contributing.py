"""The commands in CONTRIBUTING.md exist, and what each needs is installed by an earlier command."""

from __future__ import annotations

import re
import tomllib

from reading import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()


def test_every_target_is_in_the_makefile() -> None:
    named = set(re.findall(r"make ([a-z-]+)", TEXT))
    assert named and named <= set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_every_path_is_there() -> None:
    paths = re.findall(r"\b((?:tests|docs|rust|python)/[\w/.-]+\w)", TEXT)
    assert paths
    for path in paths:
        assert (ROOT / path).exists(), path


def test_what_is_run_from_the_environment_comes_with_make_tools() -> None:
    uses = re.findall(r"\.venv/bin/python -m (\w+)", TEXT)
    assert uses
    assert TEXT.index("make tools") < TEXT.index(".venv/bin/python")
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    named = [group["include-group"] for group in groups["checks"]]
    installed = " ".join(need for group in named for need in groups[group] if isinstance(need, str))
    assert all(module in installed for module in uses)
    rule = re.search(r"^tools: (.*?)(##|$)", MAKEFILE, re.MULTILINE)
    assert rule is not None
    assert {"$(VENV)/tools", "$(VENV)/built"} <= set(rule[1].split())
