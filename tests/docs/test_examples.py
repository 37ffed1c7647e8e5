"""Every Python example that a reader may copy runs: those of the README, the docs and the docstrings."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# A block is skipped only with a reason: <!-- not run: needs a bucket -->
BLOCK = re.compile(
    r"(?P<skip><!-- not run: .+? -->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(page: Path) -> list[tuple[int, str]]:
    """The Python blocks of a page that must run, with the line where each starts."""
    text = page.read_text("utf-8")
    return [
        (text.count("\n", 0, found.start("code")), found["code"])
        for found in BLOCK.finditer(text)
        if found["skip"] is None
    ]


def run_doctest(source: str, name: str, path: str, line: int, names: dict[str, Any]) -> None:
    """Run the examples of a text; their output must equal the output in the text."""
    test = doctest.DocTestParser().get_doctest(source, names, name, path, line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert not report, "".join(report)


def public_docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings of the public names, and of the members of public classes and modules."""
    for name in penstock.__all__:
        thing = getattr(penstock, name)
        yield name, inspect.getdoc(thing) or ""
        if inspect.isclass(thing) or inspect.ismodule(thing):
            for part, member in vars(thing).items():
                if not part.startswith("_") and callable(getattr(thing, part)):
                    yield f"{name}.{part}", inspect.getdoc(member) or ""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that pages use without making them."""
    monkeypatch.chdir(tmp_path)
    data = {"label": range(20), "text": [f"text {n}" for n in range(20)]}
    penstock.write(data, "train.parquet", num_shards=2)
    penstock.write(data, "train.arrow")


EXAMPLES = {name: text for name, text in public_docstrings() if ">>>" in text}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.usefixtures("workplace")
def test_the_examples_of_a_page_run(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    for line, code in blocks(page):
        if ">>>" in code:
            run_doctest(code, page.name, str(page), line, names)
        else:
            exec(compile("\n" * line + code, str(page), "exec"), names)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_doctest(EXAMPLES[name], name, name, 0, {})


def test_every_link_of_a_page_leads_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not dead
