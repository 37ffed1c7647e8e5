"""The options of formats must have the types in their annotations, as far as penstock can check these types."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penstock.contract.options import options_from

if TYPE_CHECKING:
    from fractions import Fraction


@dataclass
class Known:
    """Options with the types that penstock's formats use."""

    level: int | None = None
    name: str = ""
    exact: bool = False
    part: float = 0.0
    words: tuple[Decimal, ...] | None = None


@dataclass
class Elsewhere:
    """An annotation that is available only to type checkers."""

    level: int = 0
    part: Fraction | None = None


@pytest.mark.parametrize(
    ("word", "value", "becomes"),
    [
        ("level", np.int64(3), 3),
        ("level", None, None),
        ("name", Path("x"), "x"),
        ("exact", np.bool_(True), True),
        ("exact", 1, True),
        ("part", 2, 2.0),
        ("words", "anything", "anything"),
    ],
)
def test_values_become_python_values(word: str, value: Any, becomes: Any) -> None:
    made = getattr(options_from(Known, {word: value}, "toy"), word)
    assert made == becomes and type(made) is type(becomes)


@pytest.mark.parametrize(
    ("word", "value", "expected"),
    [
        ("level", "high", "a whole number or None"),
        ("level", True, "a whole number or None"),
        ("level", 1.5, "a whole number or None"),
        ("name", 3, "text"),
        ("exact", 2, "true or false"),
        ("part", "a", "a number"),
    ],
)
def test_others_are_refused_by_name(word: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError) as caught:
        options_from(Known, {word: value}, "toy")
    assert str(caught.value) == f"toy: option {word} is {expected}, not {value!r}"


def test_unresolved_annotations_are_left_to_the_format() -> None:
    assert options_from(Elsewhere, {"level": "high"}, "toy").level == "high"
    with pytest.raises(TypeError, match="has no option 'other'; its options: level, part"):
        options_from(Elsewhere, {"other": 1}, "toy")
