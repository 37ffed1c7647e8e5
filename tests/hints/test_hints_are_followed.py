"""Hints are true: an input that raises a hint can be read, or written, once the advice is followed.

The hints are collected from penstock's source, and each is followed by a case in one of the modules next to this one.
So a new hint without a case fails here.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from steps import Cases, Make

import penstock as ps
from reading import ROOT

MODULES: list[Cases] = [
    importlib.import_module(path.stem).CASES
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
]
MAKERS: list[tuple[str, Make]] = [
    (hint, make)
    for cases in MODULES
    for hint, makes in cases.items()
    for make in (makes if isinstance(makes, tuple) else (makes,))
]


def hints() -> set[str]:
    """The source text of every hint in the package: arguments called hint=, and values that become hints through a
    name."""
    found: set[str] = set()
    for path in sorted((ROOT / "python" / "penstock").rglob("*.py")):
        tree = ast.parse(path.read_text())
        named = {node.id for node in _given(tree) if isinstance(node, ast.Name)} | {"hint"}
        values = [*_given(tree), *_assigned(tree, named)]
        found |= {ast.unparse(value) for value in values if not _says_nothing(value)}
    return found


def _given(tree: ast.AST) -> Iterator[ast.expr]:
    """The values of hint= in calls, and values that are set under that name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        yield from (word.value for word in node.keywords if word.arg == "hint")
        if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == "hint":
            yield from node.args[1:2]  # as in facts.setdefault("hint", ...)


def _assigned(tree: ast.AST, names: set[str]) -> Iterator[ast.expr]:
    """Values that are assigned to one of these names, to a constant whose name ends in _HINT, or to an error's hint."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))  # `a, b = *c,`
            for place, value in pairs:
                name = place.id if isinstance(place, ast.Name) else ""
                of_error = isinstance(place, ast.Attribute) and place.attr == "hint"
                if name in names or name.endswith("_HINT") or of_error:
                    yield value


def _says_nothing(value: ast.expr) -> bool:
    """Whether the value has no text of its own: it is None, or a hint from elsewhere, unchanged or reworded for the
    command line."""
    if isinstance(value, ast.IfExp):
        return all(
            _says_nothing(one) and not _is_constant(one) for one in (value.body, value.orelse)
        )
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) in {"getattr", "in_options"}
    is_given = isinstance(value, ast.Name) or ast.unparse(value) == "error.hint"
    return is_given or (isinstance(value, ast.Constant) and value.value is None)


def _is_constant(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id.isupper()


def _pattern(hint: str) -> str:
    """A pattern for the hint with this source text: the values in an f-string may be anything."""
    value = ast.parse(hint, mode="eval").body
    parts = value.values if isinstance(value, ast.JoinedStr) else [value]
    assert all(isinstance(part, ast.Constant | ast.FormattedValue) for part in parts), (
        "the source does not contain the text of this hint, so the case must give it"
    )
    return "".join(
        re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts
    )


@pytest.mark.parametrize(
    ("hint", "make"), MAKERS, ids=[make.__name__.strip("_") for _, make in MAKERS]
)
def test_following_a_hint_works(
    hint: str, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    case = make()
    with pytest.raises(ps.PenstockError) as refused:
        case.fails()
    if case.hint is None:
        assert re.fullmatch(_pattern(hint), str(refused.value.hint), re.DOTALL)
    else:
        assert refused.value.hint == case.hint
    case.advised()


def test_every_hint_has_a_case() -> None:
    found, cases = hints(), set(chain.from_iterable(MODULES))
    assert not (found - cases), "a new hint needs a case that follows it"
    assert not (cases - found), "remove the cases of hints that are gone or have another text"


def test_the_cases_of_a_hint_are_in_one_module() -> None:
    assert len(set(chain.from_iterable(MODULES))) == sum(map(len, MODULES))
