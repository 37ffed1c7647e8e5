"""Rewrites the hints of errors: Python's keywords become options of the command that was run."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import click

from penstock import formats
from penstock.cli.options import Misuse, is_reading

_ALIASES = {"infer_records": "infer"}
_VALUE = r"\"[^\"]*\"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[\w.]+(?:\([^)]*\))?"
_GIVEN = rf"\w+=(?:{_VALUE})"
_CALL = rf"\b(?P<verb>open|write|convert)\(\.\.\., (?P<keywords>{_GIVEN}(?:, {_GIVEN})*)\)"
_OTHER_CALL = r"(?P<other>(?<![\w.=])[\w.]+\([^()]*\))"
_QUOTED = r"""(?<![\w=])(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?!\w)"""
"""Text of the user, or of a file."""
_KEYWORD = rf"(?<![\w.-])(?P<bare>\w+)=(?P<value>{_VALUE}|(?=[ ,)]|$))"
# One pattern for all, so that replaced text is not replaced again.
_ANY = re.compile(f"{_CALL}|{_OTHER_CALL}|{_QUOTED}|{_KEYWORD}")
_EACH = re.compile(rf"(?P<name>\w+)=(?P<value>{_VALUE})")


def advise_in_options(error: Any, given: Sequence[str], program: click.Group) -> None:
    """Rewrite the hint of an error for the command line `given`."""
    hint = getattr(error, "hint", None)
    if isinstance(hint, str):
        error.hint = in_options(hint, given, program)
    elif isinstance(error, FileExistsError) and error.strerror is not None:
        # Of an object or a manifest, or the system's, which has no keywords.
        error.strerror = in_options(error.strerror, given, program)
    elif isinstance(error, (FileExistsError, FileNotFoundError)) and not error.strerror:
        fact, mark, advice = str(error).rpartition("; ")
        error.args = (fact + mark + in_options(advice, given, program),)
    elif isinstance(error, OSError) and "; try: " in (error.strerror or ""):
        error.strerror = in_options(error.strerror or "", given, program)
    elif isinstance(error, Misuse):
        # If a name was typed, the facts have it, and stay as they are.
        facts = error.message.partition("\n  try: ")[:2] if error.field else ("", "")
        advice = in_options(error.message[len("".join(facts)) :], given, program)
        error.message = "".join((*facts, advice))  # pyright: ignore[reportAttributeAccessIssue]  final only to the type checker


def in_options(hint: str, given: Sequence[str], program: click.Group) -> str:
    """Return a hint for the command line `given`. Keywords that have no option are marked as Python."""
    return _worded(hint, _options_of(given, program))


def in_options_of(note: str, command: click.Command) -> str:
    """Return a note for a command. Keywords that have no option are marked as Python."""
    return _worded(note, _options_in(command))


def _worded(hint: str, options: dict[str, click.Option]) -> str:
    if not options:
        return hint
    wording = _Wording(options)
    return re.sub(
        r"(?<![\w.])(open|write|convert)\(\.\.\.\)",
        r"in Python, penstock.\1(...)",
        _ANY.sub(wording.of, hint),
    )


class _Wording:
    """The words of one command for the keywords in a hint."""

    def __init__(self, options: dict[str, click.Option]) -> None:
        self._options = options
        self._is_marked = False

    def of(self, found: re.Match[str]) -> str:
        if not (found["verb"] or found["bare"]):
            return found[0]  # quoted, or a call of something that no command does
        if found["bare"]:
            word = self._word(None, found["bare"], found["value"])
            # Without a value, it is only the name of an argument.
            return word or (self._in_python(found[0]) if found["value"] else found[0])
        words = [
            self._word(found["verb"], one["name"], one["value"])
            for one in _EACH.finditer(found["keywords"])
        ]
        known = [word for word in words if word is not None]
        return " ".join(known) if len(known) == len(words) else self._in_python(found[0])

    def _in_python(self, text: str) -> str:
        mark = "" if self._is_marked else "in Python, "
        self._is_marked = True
        return f"{mark}penstock.{text}" if re.match(r"\w+\(", text) else f"{mark}{text}"

    def _word(self, verb: str | None, name: str, value: str) -> str | None:
        """Return what is typed for a keyword, or None if the command has no option for it."""
        if "pa." in value:
            return None  # a type that a command line cannot name
        name = _ALIASES.get(name, name)
        # If a command has two formats, `open` means the format that is read.
        is_written = name == "format" and verb != "open" and "to" in self._options
        option = self._options.get("to" if is_written else name)
        if option is not None and value == "False" and not option.is_flag:
            return None
        if option is not None and (verb != "open" or is_reading(option)):
            return _typed_option(option, value)
        holder = self._holder(verb, name)
        if holder is None:
            return None
        given = f"{name}={_in_json(value or '...')}"
        return f"{holder.opts[-1]} {shlex.quote(given)}"

    def _holder(self, verb: str | None, name: str) -> click.Option | None:
        """Return the option that takes this option of a format, --read or --option."""
        kinds = formats.FORMATS
        is_written = any(name in _names_of(kind.write_options) for kind in kinds)
        if verb != "open" and is_written and "more" in self._options:
            return self._options["more"]
        is_read = any(name in _names_of(kind.read_options) for kind in kinds)
        return self._options.get("read") if is_read and verb in (None, "open") else None


def _names_of(options: Any) -> set[str]:
    return {field.name for field in fields(options)}


def _typed_option(option: click.Option, value: str) -> str:
    if option.is_flag:
        if value not in ("False", "None"):
            return option.opts[-1]
        return option.secondary_opts[-1] if option.secondary_opts else f"without {option.opts[-1]}"
    return " ".join(f"{option.opts[-1]} {one}".rstrip() for one in _typed(value))


def _typed(value: str) -> list[str]:
    """Return a Python value as words on a command line: a list with commas, a dict as KEY=VALUE words."""
    if limits := re.fullmatch(r"(?:\w+\.)?Limits\((.*)\)", value):
        return limits[1].split(", ")
    if value[:1] in ("[", "{"):
        # A bare word is a name to be filled in, and so is an ellipsis.
        filled = re.sub(r"(?<=\{)(\w+)(?=: )", lambda found: repr(found[1]), value)
        try:
            held: Any = ast.literal_eval(filled)
        except (ValueError, SyntaxError):
            return [value]
        if isinstance(held, dict):
            pairs = ((old, "NEW" if new is ... else new) for old, new in held.items())
            return [shlex.quote(f"{old}={new}") for old, new in pairs] or [""]
        return ["NAME,…" if held == [...] else shlex.quote(",".join(map(str, held)))]
    return [value.strip("\"'")]


def _in_json(value: str) -> str:
    try:
        held = ast.literal_eval(value)
        return held if isinstance(held, str) and held else json.dumps(held)
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
    return _options_in(command)


def _options_in(command: click.Command) -> dict[str, click.Option]:
    found = [option for option in command.params if isinstance(option, click.Option)]
    return {str(option.name): option for option in found if not option.hidden}
