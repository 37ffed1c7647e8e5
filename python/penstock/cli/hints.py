"""Rewrites the hints of errors: Python's keywords become options of the command that was run."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

import click

from penstock.cli.options import Misuse

_ALIASES = {"infer_records": "infer"}
_OF_OPEN = ("schema", "limits", "storage", "overlays", "mmap", "cache", "columns", "format")
"""Keywords of `penstock.open` that are not options of a format."""
_VALUE = r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[\w.]+(?:\([^)]*\))?"
_CALL = rf"\b(?P<verb>open|write|convert)\(\.\.\., (?P<keyword>\w+)=(?P<value>{_VALUE})\)"
_KEYWORD = rf"(?<![\w.(-])(?P<bare>\w+)=(?P<given>{_VALUE}|(?=[ ,]))(?!\))"
# One pattern for both, so that replaced text is not replaced again.
_EITHER = re.compile(f"{_CALL}|{_KEYWORD}")


def advise_in_options(error: Any, given: Sequence[str], program: click.Group) -> None:
    """Rewrite the hint of an error for the command line `given`."""
    hint = getattr(error, "hint", None)
    if isinstance(hint, str):
        error.hint = in_options(hint, given, program)
    elif isinstance(error, FileExistsError) and error.strerror is None:
        # Raised by penstock, not by the operating system.
        fact, mark, advice = str(error).rpartition("; ")
        error.args = (fact + mark + in_options(advice, given, program),)
    elif isinstance(error, Misuse):
        error.message = in_options(error.message, given, program)  # pyright: ignore[reportAttributeAccessIssue]  final only to the type checker


def in_options(hint: str, given: Sequence[str], program: click.Group) -> str:
    """Return a hint for the command line `given`. Keywords that have no option are marked as Python."""
    options = _options_of(given, program)
    if not options:
        return hint
    text = _EITHER.sub(lambda found: _as_option(found, options), hint)
    return re.sub(r"(?<![\w.])(open|write|convert)\(\.\.\.", r"in Python, penstock.\1(...", text)


def _format_option(
    verb: str | None, keyword: str, options: dict[str, click.Option]
) -> click.Option | None:
    """Return the option for a format's options, or None if `open` itself has the keyword."""
    if verb != "open":
        return options.get("more")
    return None if keyword in _OF_OPEN else options.get("read")


# Complexity: one branch for each kind of option (choice of format, of a format, flag, value).
def _as_option(found: re.Match[str], options: dict[str, click.Option]) -> str:
    name = found["keyword"] or found["bare"]
    text = found["value"] or found["given"] or ""
    if "pa." in text:
        return f"in Python, {found[0]}"  # a type that a command line cannot name
    # If a command has two formats, `open` means the format that is read.
    is_written = name == "format" and found["verb"] != "open" and "to" in options
    option = options.get("to" if is_written else _ALIASES.get(name, name))
    if option is None:
        holder = _format_option(found["verb"], name, options)
        word = shlex.quote(f"{name}={_in_json(text or '...')}")
        return found[0] if holder is None else f"{holder.opts[-1]} {word}"
    values = _typed(text)
    if option.is_flag:
        return option.opts[-1] if values[0] in ("True", "") else f"without {option.opts[-1]}"
    return " ".join(f"{option.opts[-1]} {one}".rstrip() for one in values)


def _typed(value: str) -> list[str]:
    """Return a Python value as words on a command line: a list with commas, a dict as KEY=VALUE words."""
    if value[:1] in ("[", "{"):
        try:
            held: Any = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return [value]
        if isinstance(held, dict):
            pairs = ((old, "NEW" if new is ... else new) for old, new in held.items())
            return [shlex.quote(f"{old}={new}") for old, new in pairs] or [""]
        return [shlex.quote(",".join(map(str, held)))]
    return [value.strip("\"'")]


def _in_json(value: str) -> str:
    try:
        held = ast.literal_eval(value)
        return held if isinstance(held, str) else json.dumps(held)
    except (ValueError, SyntaxError, TypeError):
        return value


def _options_of(given: Sequence[str], program: click.Group) -> dict[str, click.Option]:
    command: click.Command | None = program
    for word in given:
        if not isinstance(command, click.Group):
            break
        if not word.startswith("-"):
            command = command.get_command(click.Context(command), word)
    if command is None or isinstance(command, click.Group):
        return {}
    found = [option for option in command.params if isinstance(option, click.Option)]
    return {str(option.name): option for option in found}
