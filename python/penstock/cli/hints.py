"""What errors advise, said in the options of the command that was run instead of Python's keywords."""

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
"""Keywords of `penstock.open` that are no options of a format."""
_VALUE = r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[\w.]+(?:\([^)]*\))?"
_CALL = rf"\b(?P<verb>open|write|convert)\(\.\.\., (?P<keyword>\w+)=(?P<value>{_VALUE})\)"
_KEYWORD = rf"(?<![\w.(-])(?P<bare>\w+)=(?P<given>{_VALUE}|(?=[ ,]))(?!\))"
# In one pass: what one of them becomes is not looked at again.
_EITHER = re.compile(f"{_CALL}|{_KEYWORD}")


def advise_in_options(error: Any, given: Sequence[str], program: click.Group) -> None:
    """Let an error advise who typed `given`."""
    hint = getattr(error, "hint", None)
    if isinstance(hint, str):
        error.hint = in_options(hint, given, program)
    elif isinstance(error, FileExistsError) and error.strerror is None:
        # One of penstock's own, and not the system's.
        fact, mark, advice = str(error).rpartition("; ")
        error.args = (fact + mark + in_options(advice, given, program),)
    elif isinstance(error, Misuse):
        error.message = in_options(error.message, given, program)  # pyright: ignore[reportAttributeAccessIssue]  final only to the type checker


def in_options(hint: str, given: Sequence[str], program: click.Group) -> str:
    """A hint for who typed `given`. What the command has no option for stays Python, and says so."""
    options = _options_of(given, program)
    if not options:
        return hint
    told = _EITHER.sub(lambda found: _told(found, options), hint)
    return re.sub(r"(?<![\w.])(open|write|convert)\(\.\.\.", r"in Python, penstock.\1(...", told)


def _for_format(verb: str | None, keyword: str) -> str:
    """Which option of a command takes the options of a format that a call names."""
    if verb != "open":
        return "more"
    return "" if keyword in _OF_OPEN else "read"


def _told(found: re.Match[str], options: dict[str, click.Option]) -> str:
    """One keyword and its value as an option."""
    name = found["keyword"] or found["bare"]
    values = _typed(found["value"] or found["given"] or "")
    value = values[0]
    # Of two formats, a call of `open` names the one that is read.
    is_written = name == "format" and found["verb"] != "open" and "to" in options
    option = options.get("to" if is_written else _ALIASES.get(name, name))
    if option is None:
        option = options.get(_for_format(found["verb"], name))
        words = f"{name}={_in_json(found['value'] or found['given'] or '...')}"
        return found[0] if option is None else f"{option.opts[-1]} {shlex.quote(words)}"
    if option.is_flag:
        return option.opts[-1] if value in ("True", "") else found[0]
    return " ".join(f"{option.opts[-1]} {one}".rstrip() for one in values)


def _typed(value: str) -> list[str]:
    """A value of Python as people type it: a list with commas, a dict as one KEY=VALUE after another."""
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
    """A value of Python as options of a format are typed: as JSON has it, but text is itself."""
    try:
        held = ast.literal_eval(value)
        return held if isinstance(held, str) else json.dumps(held)
    except (ValueError, SyntaxError, TypeError):
        return value


def _options_of(given: Sequence[str], program: click.Group) -> dict[str, click.Option]:
    """The options of the command that was typed, by the names of their keywords."""
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
