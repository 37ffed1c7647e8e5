"""The options of formats must have the types in their annotations, as far as penstock can check these types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
    packing: Literal["none", "zlib"] = "none"
    effort: Literal[1, 9, "best"] | None = None
    weights: dict[str, float] | None = None
    lengths: Sequence[int] = ()


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
        ("packing", np.str_("zlib"), "zlib"),
        ("effort", np.int64(9), 9),
        ("effort", "best", "best"),
        ("effort", None, None),
        ("weights", {"a": 0.5}, {"a": 0.5}),
        ("lengths", [1, 2], [1, 2]),
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
        ("packing", 3, "'none' or 'zlib'"),
        ("packing", None, "'none' or 'zlib'"),
        ("effort", 1.5, "1 or 9 or 'best' or None"),
    ],
)
def test_others_are_refused_by_name(word: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError) as caught:
        options_from(Known, {word: value}, "toy")
    assert str(caught.value) == f"toy: option {word} is {expected}, not {value!r}"


@pytest.mark.parametrize(
    ("word", "value", "known"),
    [
        ("packing", "gzip", "'none', 'zlib'"),
        ("effort", 2, "1, 9, 'best', None"),
        ("effort", "good", "1, 9, 'best', None"),
    ],
)
def test_a_word_that_is_no_choice_is_refused_with_the_choices(
    word: str, value: Any, known: str
) -> None:
    with pytest.raises(ValueError, match="unknown") as caught:
        options_from(Known, {word: value}, "toy")
    assert str(caught.value) == f"toy: unknown {word} {value!r}; known: {known}"


def test_only_unresolved_annotations_are_left_to_the_format() -> None:
    assert options_from(Elsewhere, {"part": "half"}, "toy").part == "half"
    with pytest.raises(TypeError, match="toy: option level is a whole number, not 'high'"):
        options_from(Elsewhere, {"level": "high"}, "toy")
    with pytest.raises(TypeError, match="has no option 'other'; its options: level, part"):
        options_from(Elsewhere, {"other": 1}, "toy")
