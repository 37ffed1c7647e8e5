"""Python's own parser, called from several threads."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TypeVar

Tree = TypeVar("Tree")

_MOST_TRIES = 100
"""How often a text is parsed before an error counts. One try in ten fails while four threads do nothing but parse."""


def parsed(text: str) -> ast.Module:
    """Parse a module, whatever other threads parse meanwhile.

    Up to Python 3.11.7 all threads count the depth of their trees in one variable, so that a correct text fails with
    SystemError if the parser is interrupted by another thread. The garbage collector interrupts it when somebody, for
    example JAX, has registered a function in `gc.callbacks`. See https://github.com/python/cpython/issues/106905.
    """
    return _retried(lambda: ast.parse(text))


def parsed_expression(text: str) -> ast.expr:
    """Parse an expression, like `parsed`."""
    return _retried(lambda: ast.parse(text, mode="eval").body)


def _retried(parse: Callable[[], Tree]) -> Tree:
    for _ in range(_MOST_TRIES - 1):
        try:
            return parse()
        except SystemError:
            continue
    return parse()
