r"""Translates the patterns of RE2, which TensorFlow's string functions take, to Python's.

The strings that are searched are UTF-8 decoded by `text_values.decoded`, in which each invalid byte is one of the
surrogates U+DC80 to U+DCFF. Nothing in a pattern matches an invalid byte, as in RE2. So `.` and negated classes leave
these surrogates out. Otherwise the two languages differ in `$` and `\z`, in flags inside a pattern, in the names of
classes, and in what they refuse; `\w`, `\d`, `\s` and `\b` know only ASCII in RE2.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import lru_cache

from penstock.tf.errors import InvalidArgumentError

_Ranges = list[tuple[int, int]]
_INVALID = r"\udc80-\udcff"
_FOLDED = [
    (0x17F, 0x17F),
    (0x212A, 0x212A),
]  # letters whose lower case is ASCII: long s, and the sign of kelvin


def _ranges(text: str) -> _Ranges:
    return [(ord(text[n]), ord(text[n + 1])) for n in range(0, len(text), 2)]


_PERL = {"d": _ranges("09"), "w": _ranges("09AZaz__"), "s": _ranges("\t\n\f\r  ")}
_POSIX = {
    "alnum": "09AZaz", "alpha": "AZaz", "ascii": "\x00\x7f", "blank": "\t\t  ", "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09", "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ",
    "upper": "AZ", "word": "09AZaz__", "xdigit": "09AFaf",
}  # fmt: skip
_LETTERS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_GROUP = re.compile(r"\(\?(?:P<(?P<name>\w+)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
_REPEAT = re.compile(r"[*+?]|\{(\d+)(?:,(\d*))?\}")
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
_PROPERTY = re.compile(r"[pP](?:([A-Z])|\{(\^?)(\w+)\})")


@lru_cache(512)
def pattern(text: str) -> re.Pattern[str]:
    r"""Compile a pattern of RE2.

    Raises:
        InvalidArgumentError: it is not a pattern of RE2, or has `\C` or a script such as `\p{Greek}`.
    """
    try:
        return re.compile(_Translation(text).whole())
    except (re.error, _PatternError, OverflowError) as error:
        shown = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        raise InvalidArgumentError(
            None, None, f"Invalid pattern: {shown}, error: {error}"
        ) from None


class _PatternError(Exception):
    """What is wrong with a pattern."""


class _Translation:
    """The state of a translation: the place in the pattern, the flags, and the groups that are open."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.made: list[str] = []
        self.flags: frozenset[str] = frozenset()
        self.outer: list[tuple[frozenset[str], list[str]]] = []
        self.opened: list[
            str
        ] = []  # the groups for flags that were set inside the group that is open
        self.repeats = False  # whether the last part is a repetition, which cannot be repeated

    def whole(self) -> str:
        if re.search(f"[{_INVALID}]", self.text):
            raise _PatternError("invalid UTF-8")
        while self.at < len(self.text):
            self._part()
        if self.outer:
            raise _PatternError(f"missing ): {self.text}")
        return "".join(self.made) + ")" * len(self.opened)

    def _part(self) -> None:
        first = self.text[self.at]
        if first in "*+?{" and self._repeated():
            return
        self.repeats = False
        if first == "(":
            self._open()
        elif first == ")":
            self._close()
        elif first == "[":
            self._class()
        elif first == "\\":
            self._escape()
        else:
            self.at += 1
            self.made.append(self._plain(first))

    def _plain(self, letter: str) -> str:
        if letter == ".":
            return f"[^{_INVALID}]" if "s" in self.flags else rf"[^\n{_INVALID}]"
        if letter == "^":
            return "(?m:^)" if "m" in self.flags else r"\A"
        if letter == "$":
            return "(?m:$)" if "m" in self.flags else r"\Z"
        if letter == "|":
            return ")" * len(self.opened) + "|" + "".join(self.opened)
        return re.escape(letter)

    def _repeated(self) -> bool:
        """Translate a repetition. A brace that does not begin one is a literal."""
        found = _REPEAT.match(self.text, self.at)
        if not found:
            return False
        if self.repeats:
            raise _PatternError(f"bad repetition operator: {self.text[self.at - 1 : found.end()]}")
        if any(size and int(size) > 1000 for size in found.groups()):
            raise _PatternError(f"invalid repetition size: {found[0]}")
        self.at = found.end()
        lazy = self.text[self.at : self.at + 1] == "?"
        self.at += lazy
        self.made.append(found[0] + "?" * (lazy != ("U" in self.flags)))
        self.repeats = True
        return True

    def _open(self) -> None:
        if self.text[self.at : self.at + 2] != "(?":
            self.at += 1
            self._enter("(", self.flags)
            return
        found = _GROUP.match(self.text, self.at)
        if not found:
            raise _PatternError(f"invalid perl operator: {self.text[self.at : self.at + 3]}")
        self.at = found.end()
        if found["name"]:
            self._enter(f"(?P<{found['name']}>", self.flags)
            return
        added, _, dropped = found["flags"].partition("-")
        flags = (self.flags | set(added)) - set(dropped)
        begin = f"(?{'i' if 'i' in flags else '-i'}:"
        if found["end"] == ":":
            self._enter(begin, flags)
            return
        self.flags = flags
        self.opened.append(begin)
        self.made.append(begin)

    def _enter(self, begin: str, flags: frozenset[str]) -> None:
        self.outer.append((self.flags, self.opened))
        self.flags, self.opened = flags, []
        self.made.append(begin)

    def _close(self) -> None:
        if not self.outer:
            raise _PatternError(f"unexpected ): {self.text}")
        self.at += 1
        self.made.append(")" * (len(self.opened) + 1))
        self.flags, self.opened = self.outer.pop()

    def _escape(self) -> None:
        after = self.text[self.at + 1 : self.at + 2]
        if after in ("A", "z", "b", "B", "Q"):
            self.at += 2
            self.made.append(self._quoted() if after == "Q" else _ANCHORS[after])
            return
        found = self._group_of_escape()
        if found:
            ranges, negated = found
            self.made.append(_written(ranges, negated))
        else:
            self.made.append(re.escape(chr(self._code())))

    def _quoted(self) -> str:
        end = self.text.find(r"\E", self.at)
        end = len(self.text) if end < 0 else end
        literal = self.text[self.at : end]
        self.at = min(end + 2, len(self.text))
        return re.escape(literal)

    def _group_of_escape(self) -> tuple[_Ranges, bool] | None:
        r"""The characters of `\d`, `\W`, `\pL` and others, if one is here."""
        after = self.text[self.at + 1 : self.at + 2]
        if after and after in "dDwWsS":
            self.at += 2
            return _PERL[after.lower()], after.isupper()
        if not after or after not in "pP":
            return None
        found = _PROPERTY.match(self.text, self.at + 1)
        if not found:
            raise _PatternError(f"invalid character class range: {self.text[self.at :]}")
        self.at = found.end()
        return _category(found[1] or found[3]), (after == "P") != bool(found[2])

    def _code(self) -> int:
        """The character of an escape, or of a literal in a class."""
        first = self.text[self.at]
        if first != "\\":
            self.at += 1
            return ord(first)
        after = self.text[self.at + 1 : self.at + 2]
        if not after:
            raise _PatternError("trailing \\")
        found = _CODE.match(self.text, self.at + 1)
        if found:
            self.at = found.end()
            code = int(found[1] or found[2], 16) if not found[3] else int(found[3], 8)
            if code <= sys.maxunicode:
                return code
        elif after in _LETTERS or (after.isascii() and not after.isalnum()):
            self.at += 2
            return ord(_LETTERS.get(after, after))
        note = " (penstock matches characters, not bytes)" if after == "C" else ""
        raise _PatternError(f"invalid escape sequence: \\{after}{note}")

    def _class(self) -> None:
        begin = self.at
        negated = self.text[begin + 1 : begin + 2] == "^"
        self.at += 1 + negated
        ranges: _Ranges = []
        first = True
        while first or self.text[self.at : self.at + 1] != "]":
            if self.at >= len(self.text):
                raise _PatternError(f"missing ]: {self.text[begin:]}")
            ranges += self._item()
            first = False
        self.at += 1
        self.made.append(_written(ranges, negated))

    def _item(self) -> _Ranges:
        named = re.compile(r"\[:(\^?)(\w+):\]").match(self.text, self.at)
        if named:
            if named[2] not in _POSIX:
                raise _PatternError(f"invalid character class range: {named[0]}")
            self.at = named.end()
            return self._chosen(_ranges(_POSIX[named[2]]), bool(named[1]))
        found = self._group_of_escape() if self.text[self.at] == "\\" else None
        if found:
            return self._chosen(*found)
        low = high = self._code()
        ends = self.text[self.at : self.at + 2]
        if ends[:1] == "-" and ends != "-]" and len(ends) == 2:
            self.at += 1
            high = self._code()
            if high < low:
                raise _PatternError(f"invalid character class range: {chr(low)}-{chr(high)}")
        return [(low, high)]

    def _chosen(self, ranges: _Ranges, negated: bool) -> _Ranges:
        return _others(ranges + (_FOLDED if "i" in self.flags else [])) if negated else ranges


_ANCHORS = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B|\A\Z)"}


def _others(ranges: _Ranges) -> _Ranges:
    """The characters that are not in ranges and that are not invalid bytes."""
    others: _Ranges = []
    begin = 0
    for low, high in sorted([*ranges, (0xDC80, 0xDCFF)]):
        if low > begin:
            others.append((begin, low - 1))
        begin = max(begin, high + 1)
    return [*others, (begin, sys.maxunicode)] if begin <= sys.maxunicode else others


def _written(ranges: _Ranges, negated: bool) -> str:
    parts = "".join(f"{_literal(low)}-{_literal(high)}" for low, high in ranges)
    if negated:
        return f"[^{parts}{_INVALID}]"
    return f"[{parts}]" if parts else "(?!)"


def _literal(code: int) -> str:
    return f"\\U{code:08x}"


@lru_cache(64)
def _category(name: str) -> _Ranges:
    """The characters of a general category of Unicode, such as L or Lu."""
    if name == "Any":
        return [(0, sys.maxunicode)]
    found: _Ranges = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith(name):
            if found and found[-1][1] == code - 1:
                found[-1] = found[-1][0], code
            else:
                found.append((code, code))
    if not found or len(name) > 2:
        raise _PatternError(
            f"invalid character class range: \\p{{{name}}} (penstock knows categories, not scripts)"
        )
    return found
