"""What errors advise, said in the options of the command that was run instead of Python's keywords."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

_ALIASES = {"infer_records": "infer"}
_OF_OPEN = ("schema", "limits", "storage", "overlays", "mmap", "cache", "columns", "format")
"""Keywords of `penstock.open` that are no options of a format."""
_VALUE = r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[\w.]+(?:\([^)]*\))?"
_CALL = re.compile(rf"\b(?:open|write|convert)\(\.\.\., (\w+)=({_VALUE})\)")
_KEYWORD = re.compile(rf"(?<![\w.(-])(\w+)=({_VALUE}|(?=[ ,]))(?!\))")


def advise_in_options(error: Any, given: Sequence[str], program: click.Group) -> None:
    """Let an error advise who typed `given`."""
    hint = getattr(error, "hint", None)
    if isinstance(hint, str):
        error.hint = in_options(hint, given, program)
    elif isinstance(error, FileExistsError) and error.strerror is None:
        # One of penstock's own, and not the system's.
        fact, mark, advice = str(error).rpartition("; ")
        error.args = (fact + mark + in_options(advice, given, program),)


def in_options(hint: str, given: Sequence[str], program: click.Group) -> str:
    """A hint for who typed `given`. What the command has no option for stays Python, and says so."""
    options = _options_of(given, program)
    if not options:
        return hint
    told = _CALL.sub(lambda found: _told(found, options, _in_call(found[0], found[1])), hint)
    told = _KEYWORD.sub(lambda found: _told(found, options, "more"), told)
    return re.sub(r"(?<![\w.])(open|write|convert)\(\.\.\.", r"in Python, penstock.\1(...", told)


def _in_call(call: str, keyword: str) -> str:
    """Which option of a command takes the options of a format that a call names."""
    if not call.startswith("open"):
        return "more"
    return "" if keyword in _OF_OPEN else "read"


def _told(found: re.Match[str], options: dict[str, click.Option], other: str) -> str:
    """One keyword and its value as an option."""
    name, value = found[1], found[2]
    if value[:1] == "[":
        value = ",".join(re.findall(r"'([^']*)'", value))
    value = value.strip("\"'")
    option = options.get(_ALIASES.get(name, name))
    if option is None:
        option = options.get(other)
        words = f"{name}={value or '...'}"
        return found[0] if option is None else f"{option.opts[-1]} {words}"
    if option.is_flag:
        return option.opts[-1] if value in ("True", "") else found[0]
    return f"{option.opts[-1]} {value}".rstrip()


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
