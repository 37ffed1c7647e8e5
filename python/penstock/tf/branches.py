"""The branches of `if` statements and expressions in which an instruction of a program is.

TensorFlow traces each branch of an `if` on a tensor as a graph of its own. Branches are found by the positions that
Python keeps for instructions, in the syntax tree of the file. `if x: return a` and the statements after it are traced
as `if` and `else`.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from itertools import islice
from types import CodeType
from typing import NamedTuple

from penstock.engine.syntax import parsed

Position = tuple[int, int]
"""The line and the column."""


class Span(NamedTuple):
    """A part of a file."""

    first: Position
    end: Position

    def has(self, place: Position) -> bool:
        """Whether a position is in it."""
        return self.first <= place < self.end


class Around(NamedTuple):
    """What is around an instruction.

    Attributes: branches (from the outermost: the number of an `if` in its file, and whether it is the first branch) and
    tested (the number of the `if` whose test the instruction belongs to, and whether it is the first operand of `and`
    or `or`; None if there is none).
    """

    branches: tuple[tuple[int, bool], ...]
    tested: tuple[int, bool] | None


class Branching(NamedTuple):
    """An `if`: the whole of it, its test, the first operand of the test, and the spans of its two branches."""

    whole: Span
    test: Span
    first_operand: Span
    sides: tuple[tuple[Span, ...], tuple[Span, ...]]


_MOST_KNOWN = 4096
_KNOWN: dict[tuple[int, int], tuple[CodeType, Around]] = {}
"""What is around an instruction. Codes are known by identity, because comparing them takes long."""


def around(code: CodeType, instruction: int) -> Around:
    """The `if`s around an instruction of a function."""
    known = _KNOWN.get((id(code), instruction))
    if known is not None:
        return known[1]
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    found = Around(_branches(code, instruction), _tested(code, instruction))
    _KNOWN[id(code), instruction] = code, found
    return found


def _branches(code: CodeType, instruction: int) -> tuple[tuple[int, bool], ...]:
    span = _span_of(code, instruction)
    if span is None:
        return ()
    place = span.first
    return tuple(
        (number, side == 0)
        for number, one in enumerate(_of_file(code.co_filename))
        for side, spans in enumerate(one.sides)
        if any(span.has(place) for span in spans)
    )


def _tested(code: CodeType, instruction: int) -> tuple[int, bool] | None:
    span = _span_of(code, instruction)
    if span is None:
        return None
    # Python tests a name, a call and the like by an instruction that has the position of the whole `if`.
    found = [
        (number, span == one.whole or one.first_operand.has(span.first))
        for number, one in enumerate(_of_file(code.co_filename))
        if span == one.whole or one.test.has(span.first)
    ]
    return found[-1] if found else None


def _span_of(code: CodeType, instruction: int) -> Span | None:
    line, end, column, end_column = next(islice(code.co_positions(), instruction // 2, None))
    if line is None or end is None or column is None or end_column is None:
        return None
    return Span((line, column), (end, end_column))


@functools.lru_cache(256)
def _of_file(path: str) -> tuple[Branching, ...]:
    """The `if`s of a file in their order; none if it cannot be read."""
    try:
        tree = parsed("".join(linecache.getlines(path)))
    except SyntaxError:
        return ()
    found = [*_in_block(tree.body), *_expressions(tree)]
    return tuple(sorted(found, key=lambda one: (one.test.first, one.test.end)))


def _expressions(tree: ast.AST) -> Iterator[Branching]:
    for node in ast.walk(tree):
        if isinstance(node, ast.IfExp):
            yield _branching(node, node.test, [node.body], [node.orelse])


def _in_block(block: list[ast.stmt]) -> Iterator[Branching]:
    """The `if` statements of a block, and of the blocks in it."""
    for number, statement in enumerate(block):
        if isinstance(statement, ast.If):
            body, other, rest = statement.body, statement.orelse, block[number + 1 :]
            if _returns(body):
                other = [*other, *rest]
            elif _returns(other):
                body = [*body, *rest]
            yield _branching(statement, statement.test, body, other)
        for _, field in ast.iter_fields(statement):
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
                yield from _in_block(field)


def _returns(block: list[ast.stmt]) -> bool:
    """Whether a block ends the function, whatever happens in it."""
    if not block:
        return False
    last = block[-1]
    if isinstance(last, ast.If):
        return _returns(last.body) and _returns(last.orelse)
    return isinstance(last, ast.Return)


def _branching(
    whole: ast.AST, test: ast.expr, body: Sequence[ast.AST], other: Sequence[ast.AST]
) -> Branching:
    operand = test.values[0] if isinstance(test, ast.BoolOp) else test
    sides = _spans(body), _spans(other)
    return Branching(_span(whole), _span(test), _span(operand), sides)


def _spans(nodes: Sequence[ast.AST]) -> tuple[Span, ...]:
    return tuple(map(_span, nodes))


def _span(node: ast.AST) -> Span:
    at = node
    return Span((at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset))  # type: ignore[attr-defined]
