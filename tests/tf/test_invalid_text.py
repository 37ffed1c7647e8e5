"""Strings that are not UTF-8, and the patterns of RE2, in `tf.strings`: TensorFlow gives the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

TEXTS = [
    b"", b"abc", b"abc\xff\xfe d", b"caf\xe9", "é É".encode(), b"caf\xc3\xa9 \xc3", b"x\xe6\x97", b"a\nb\n", b"xxaxx",
    b"\xc0\x80a", b"A-B_c 9", "😀! kK".encode(), b"a\xffa", b"(x)[y]", b"aaa\n\nbb",
]  # fmt: skip
PATTERNS = [
    "[^a-zA-Z']", ".", ".*", "x*", "x*?", "a|", "|a", "b$", "^a", "$", r"\A", r"\z", "(?s).", "(?m)^", "(?m)b$", "(?i)A",
    "a(?i)B|k", "(?i:B)c?", "(?-i)a", "(?U)a+", r"\W", r"[\W_]", r"[\D]", r"[^\W\d]", r"\S+", r"\bx", "[[:^alpha:]]",
    "[^[:alpha:]]", "[[:word:]]+", r"\pL", r"\p{L}+", r"\PL", r"[^\p{L}]", r"\p{^L}", "(a)|(b)", r"\x{e9}", "é", "[é]",
    r"\Q(x)\E", "[]x]", "[^]x]", "(?P<n>a)(b)?", "[a-]", "a{2}", "a{,2}", r"[\-\]]", r"\101", r"\_", r"\-", "(?:a|b)+",
    "(?i)[k]", "(?i)[^k]", r"(?i)[\W]", "x**", "a++", "(?=a)", r"(a)\1", "[", "(", ")", "*", "(?x)a", r"\Z", r"\h",
    "[z-a]", "a{1001}",
]  # fmt: skip


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return np.asarray(run()).tolist()
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_match_what_they_match_in_re2(pattern: Any) -> None:
    runs: list[Callable[[Any], Any]] = [
        lambda t: t.strings.regex_replace(TEXTS, pattern, r"<\0>"),
        lambda t: t.strings.regex_replace(TEXTS, pattern, "_", replace_global=False),
        lambda t: t.strings.regex_full_match(TEXTS, pattern),
    ]
    for run in runs:
        mine, theirs = partial(run, tf), partial(run, tensorflow)
        assert outcome(mine) == outcome(theirs)


def test_a_pattern_that_penstock_lacks_says_so() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="categories, not scripts"):
        tf.strings.regex_replace("a", r"\p{Greek}", "")
    with pytest.raises(tf.errors.InvalidArgumentError, match="matches characters, not bytes"):
        tf.strings.regex_replace("a", r"\C", "")
    with pytest.raises(tf.errors.InvalidArgumentError, match="invalid UTF-8"):
        tf.strings.regex_replace("a", b"[\xff]", "")


EQUAL: dict[str, Callable[[Any], Any]] = {
    "lower": lambda t: t.strings.lower(TEXTS, "utf-8"),
    "upper": lambda t: t.strings.upper(TEXTS, "utf-8"),
    "length": lambda t: t.strings.length(TEXTS, "UTF8_CHAR"),
    "start": lambda t: t.strings.substr(TEXTS, 0, 2, "UTF8_CHAR"),
    "end": lambda t: t.strings.substr(TEXTS[1:], -1, 1, "UTF8_CHAR"),
    "beyond": lambda t: t.strings.substr(TEXTS[1:], -4, 1, "UTF8_CHAR"),
    "split": lambda t: t.strings.split(TEXTS, b"\xff").flat_values,
    "join": lambda t: t.strings.join([TEXTS, b"\xfe"], b"\xff"),
    "ngrams": lambda t: t.strings.ngrams(TEXTS, 2, separator=b"\xff"),
    "format": lambda t: t.strings.format("{}", t.constant(b"a\xff")),
    "decode": lambda t: t.strings.unicode_decode(TEXTS, "UTF-8").flat_values,
    "decode controls": lambda t: t.strings.unicode_decode(
        b"a\x01\xffb", "UTF-8", "replace", 63, replace_control_characters=True
    ),
    "ignore controls": lambda t: t.strings.unicode_transcode(
        b"a\x01\xffb", "UTF-8", "UTF-16-BE", "ignore", replace_control_characters=True
    ),
    "refuse controls": lambda t: t.strings.unicode_transcode(
        "a\x01b", "UTF-8", "UTF-8", "strict", replace_control_characters=True
    ),
    "encode": lambda t: t.strings.unicode_encode([0xD800, 65, -1, 1 << 21], "UTF-8"),
    "encode what is sound": lambda t: t.strings.unicode_encode([0xD800, 65], "UTF-8", "ignore"),
    "refuse to encode": lambda t: t.strings.unicode_encode([0xD800, 65], "UTF-8", "strict"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_bytes_that_are_not_utf8_are_treated_as_in_tensorflow(name: str) -> None:
    assert outcome(lambda: EQUAL[name](tf)) == outcome(lambda: EQUAL[name](tensorflow))
