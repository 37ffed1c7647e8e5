"""The grammar of conditions, and the parser that converts a text to a tree.

```
condition  = all { "or" all }
all        = one { "and" one }
one        = [ "not" ] ( sum [ comparison ] )
comparison = ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum
           | [ "not" ] "in" list | [ "not" ] "between" sum "and" sum
           | [ "not" ] ( "like" | "ilike" ) string | "is" [ "not" ] "null"
sum        = product { ( "+" | "-" ) product }
product    = value { ( "*" | "/" | "%" ) value }
value      = literal | field | call | "(" condition ")" | "-" value
call       = function "(" argument { "," argument } { "," ( literal | table ) } ")"
argument   = condition | literal
field      = letters, digits, _ . / -, beginning with a letter or _ | "`" anything but ` "`"
literal    = a JSON number, string, true, false or null        list = a JSON array of literals
table      = list | a JSON object of literals
```

`-` and `/` may be part of a field's name, so they need spaces around them when they are operators.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

MOST_NESTED = 64
"""The most levels of parentheses, calls and `not`, so that Python's stack does not overflow."""
COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
_WORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))
_NAME = re.compile(r"[^\W\d][\w./-]*")
_LAST_WORD = re.compile(r"\w+\s*$")
_QUOTED = re.compile(r"`([^`]+)`")
_BLANKS = re.compile(r"\s*")
_MINUS = re.compile(r"-(?!\d)")  # one before digits belongs to a number
_COMPARISON = re.compile("|".join(COMPARISONS))
_CALLS = {
    # name: how many values it takes, and what the literals after them are
    "if": (3, ()),
    "coalesce": (None, ()),  # any number
    "len": (1, ()),
    "startswith": (1, ("a text",)),
    "endswith": (1, ("a text",)),
    "contains": (1, ("a value",)),
    "matches": (1, ("a regular expression",)),
    "lower": (1, ()),
    "upper": (1, ()),
    "trim": (1, ()),
    "replace": (1, ("a text", "a text")),
    "abs": (1, ()),
    "round": (1, ()),
    "isnan": (1, ()),
    **dict.fromkeys(("year", "month", "day", "hour", "minute", "second"), (1, ())),
    "width": (1, ()),
    "height": (1, ()),
    "cast": (1, ("the name of a type",)),
    "try_cast": (1, ("the name of a type",)),
    "lookup": (1, ("a table",)),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of a struct."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a string, a boolean, or None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Operation:
    """A comparison, an arithmetic operation, `and`, or `or`."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Not:
    operand: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Node


@dataclass(frozen=True, slots=True)
class IsIn:
    operand: Node
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A function of values. `literals` are the arguments that follow them, for lookup a list or dict."""

    function: str
    operands: tuple[Node, ...]
    literals: tuple[Any, ...] = ()


class Written(float):
    """A number with a point or an exponent. As a float it is the nearest one, and `exact` is the number as it is
    written: 0.1 is a tenth."""

    exact: Decimal

    @classmethod
    def of(cls, number: str | Decimal) -> float:
        """The number. One that is far outside the range of a float64 is a plain float, infinite or zero."""
        found = cls(number)
        try:
            found.exact = Decimal(number)
        except InvalidOperation:
            return float(number)
        exponent = found.exact.as_tuple().exponent
        return found if abs(int(exponent)) <= _MOST_EXPONENT else float(number)


_MOST_EXPONENT = 400


Node = Field | Literal | Operation | Not | IsNull | IsIn | Call


def parse(text: str) -> Node:
    """Convert the text of a condition to a tree.

    Raises:
        ValueError: the text is not a condition. The message says what was expected, and where.

    Example:
        >>> from penstock.conditions import parse
        >>> parse('label >= 3 and `my name` in ["a", "b"]').right
        IsIn(operand=Field(name='my name'), values=('a', 'b'))
    """
    parser = _Parser(text)
    found = parser.condition()
    if not parser.is_at_end():
        raise parser.error("an operator, an `and` or an `or`, or the end")
    return found


def fields_of(node: Node) -> list[str]:
    """The names of the fields in a tree, without repeats, in the order of the text."""
    if isinstance(node, Field):
        return [node.name]
    if isinstance(node, Literal):
        return []
    if isinstance(node, Operation):
        inner = (node.left, node.right)
    else:
        inner = node.operands if isinstance(node, Call) else (node.operand,)
    return list(dict.fromkeys(name for one in inner for name in fields_of(one)))


def hint_on_capitals(name: str) -> str | None:
    """What to write instead of a name that is a word of the language in capital letters."""
    word = name.lower()
    is_word = word != name and (word in _WORDS or word in ("between", "like", "ilike"))
    return f"write `{word}` in small letters" if is_word else None


class _Parser:
    """A recursive-descent parser. `_at` is the current position in the text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._move_to(0)

    def condition(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self._one))

    def is_at_end(self) -> bool:
        return self._at == len(self._text)

    def error(self, expected: str) -> ValueError:
        rest = self._text[self._at :]
        place = f"at {rest!r}" if rest else "at the end"
        return ValueError(f"{self._text!r}: expected {expected}, {place}{self._on_capitals()}")

    def _on_capitals(self) -> str:
        """A hint, if the word here, or the one before, is AND, IN or the like, as SQL may have them."""
        before = _LAST_WORD.search(self._text[: self._at])
        for found in (_NAME.match(self._text, self._at), before):
            if found and (hint := hint_on_capitals(found[0].strip())):
                return f"; {hint}"
        return ""

    # -- the rules ------------------------------------------------------------------------------

    def _joined(self, word: str, part: Any) -> Node:
        found = part()
        while self._take_word(word):
            found = Operation(word, found, part())
        return found

    def _one(self) -> Node:
        if self._take_word("not"):
            return Not(self._nested(self._one))
        left = self._sum()
        if self._text.startswith("<>", self._at):
            raise self.error("`!=`")
        if sign := _COMPARISON.match(self._text, self._at):
            self._move_to(sign.end())
            found = Operation(sign[0], left, self._sum())
            if _COMPARISON.match(self._text, self._at):
                raise self.error("an `and`, as in 1 < x and x < 5")
            return found
        if self._text.startswith("=", self._at):
            raise self.error("`==`")
        if self._take_word("is"):
            negated = self._take_word("not")
            if not self._take_word("null"):
                raise self.error("`null`, as in `score is not null`")
            return Not(IsNull(left)) if negated else IsNull(left)
        negated = self._take_word("not")
        found = self._negatable(left)
        if found is not None:
            return Not(found) if negated else found
        if negated:
            raise self.error("`in`, `between` or `like`, as in `label not in [1, 2]`")
        is_argument = self._text.startswith((",", ")"), self._at)
        if isinstance(left, Literal) and not isinstance(left.value, bool) and not is_argument:
            raise self.error("a comparison, such as label >= 3 or score is not null")
        return left

    def _negatable(self, left: Node) -> Node | None:
        """A comparison that `not` may precede, if one follows."""
        if self._take_word("in"):
            return IsIn(left, self._list())
        if self._take_word("between"):
            least = self._sum()
            if not self._take_word("and"):
                raise self.error("`and`, as in `x between 1 and 5`")
            return Operation(
                "and", Operation(">=", left, least), Operation("<=", left, self._sum())
            )
        for word in ("like", "ilike"):
            if self._take_word(word):
                return Call(word, (left,), (self._pattern(),))
        return None

    def _pattern(self) -> str:
        begun, pattern = self._at, self._literal()
        if not isinstance(pattern, str):
            self._at = begun
            raise self.error('a pattern in quotes, such as "cat%"')
        return pattern

    def _sum(self) -> Node:
        found = self._product()
        while operator := self._take_operator("+", "-"):
            found = Operation(operator, found, self._product())
        return found

    def _product(self) -> Node:
        found = self._value()
        while operator := self._take_operator("*", "/", "%"):
            found = Operation(operator, found, self._value())
        return found

    def _value(self) -> Node:
        if self._take("("):
            found = self._nested(self.condition)
            self._expect(")")
            return found
        if quoted := _QUOTED.match(self._text, self._at):
            self._move_to(quoted.end())
            return Field(quoted[1])
        if _MINUS.match(self._text, self._at):
            self._expect("-")
            return Operation("-", Literal(0), self._nested(self._value))
        name = _NAME.match(self._text, self._at)
        if name is None or name[0] in ("true", "false", "null"):
            return Literal(self._literal())
        if name[0] in _WORDS:
            raise self.error(
                f'a value; if "{name[0]}" is the name of a field, write it in backquotes: `{name[0]}`'
            )
        if self._text.startswith("(", self._after_blanks(name.end())):
            return self._call(name[0])
        self._move_to(name.end())
        return Field(name[0])

    def _call(self, name: str) -> Call:
        if name not in _CALLS:
            raise self.error(f"one of the functions {', '.join(_CALLS)}")
        self._move_to(self._at + len(name))
        self._expect("(")
        count, kinds = _CALLS[name]
        operands = [self._nested(self.condition)]
        while len(operands) < count if count else self._text.startswith(",", self._at):
            self._expect(",")
            operands.append(self._nested(self.condition))
        literals: list[Any] = []
        for kind in kinds:
            self._expect(",")
            begun = self._at
            literals.append(self._table() if kind == "a table" else self._literal())
            if kind not in ("a value", "a table") and not isinstance(literals[-1], str):
                self._at = begun
                raise self.error(f"{kind} in quotes")
            _check_literal(kind, literals[-1])
        self._expect(")")
        return Call(name, tuple(operands), tuple(literals))

    def _literal(self) -> Any:
        value = self._json()
        if isinstance(value, (list, dict)):
            raise ValueError(
                f"{self._text!r}: {json.dumps(value)} is not a single value; lists follow `in`"
            )
        return value

    def _list(self) -> tuple[Any, ...]:
        value = self._json()
        if not isinstance(value, list) or any(isinstance(one, (list, dict)) for one in value):
            raise ValueError(f"{self._text!r}: in takes a list, such as label in [1, 2]")
        return tuple(value)

    def _table(self) -> list[Any] | dict[str, Any]:
        begun, table = self._at, self._json()
        values = list(table.values()) if isinstance(table, dict) else table
        is_table = isinstance(values, list) and bool(values)
        if not is_table or any(isinstance(one, (list, dict)) for one in values):
            self._at = begun
            raise self.error('a table, such as ["cat", "dog"] or {"n01": "cat", "n02": "dog"}')
        try:
            pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            self._at = begun
            raise self.error("a table whose values have one type") from None
        return table

    def _json(self) -> Any:
        try:
            value, end = _JSON.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            if self._text.startswith("'", self._at):
                raise self.error('a text in double quotes, such as "cat"') from None
            raise self.error(
                'a value: a field, a JSON value such as 3 or "cat", or a function '
                "such as len(tokens)"
            ) from None
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise self.error("a text in Unicode, without half of a surrogate pair") from None
        self._move_to(end)
        return value

    # -- the text -------------------------------------------------------------------------------

    def _nested(self, rule: Any) -> Node:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise ValueError(f"{self._text[:60]!r}…: nested more than {MOST_NESTED} levels deep")
        found = rule()
        self._depth -= 1
        return found

    def _move_to(self, at: int) -> None:
        self._at = self._after_blanks(at)

    def _after_blanks(self, at: int) -> int:
        blanks = _BLANKS.match(self._text, at)
        assert blanks is not None, "the pattern matches the empty text too"
        return blanks.end()

    def _take(self, sign: str) -> bool:
        found = self._text.startswith(sign, self._at)
        if found:
            self._move_to(self._at + len(sign))
        return found

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self.error(f"`{sign}`")

    def _take_word(self, word: str) -> bool:
        name = _NAME.match(self._text, self._at)
        if name is None or name[0] != word:
            return False
        self._move_to(name.end())
        return True

    def _take_operator(self, *signs: str) -> str | None:
        sign = self._text[self._at : self._at + 1]
        if sign not in signs or not sign:
            return None
        before, after = self._text[self._at - 1], self._text[self._at + 1 : self._at + 2]
        if sign in "-/" and not (before.isspace() and (after.isspace() or after in "(`")):
            raise self.error(f"spaces around `{sign}`, because names may contain it")
        self._move_to(self._at + 1)
        return sign


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_no_constant, parse_float=Written.of)


def _check_literal(kind: str, literal: Any) -> None:
    """Raise ValueError for an invalid regular expression or type."""
    if kind == "a regular expression":
        from pyarrow import compute  # the import costs 20 ms, and is rarely needed

        try:
            compute.match_substring_regex(pa.array([""]), literal)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{literal!r} is not a regular expression: {error}") from None
    if kind == "the name of a type":
        type_of(literal)


def type_of(name: str) -> pa.DataType:
    """The Arrow type with a name such as int64, float, string, timestamp[ms]."""
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise ValueError(
            f"{name!r} is not a type; types are int8 to int64, uint8 to uint64, float32, float64, "
            "bool, string, binary, date32, timestamp[s], [ms], [us], [ns]"
        ) from None
