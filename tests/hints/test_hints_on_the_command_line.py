"""A hint that is reworded for a command names only options that the command has, in words that can be typed."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import fields
from functools import cache

import click
import pytest
from test_hints_are_followed import hints

from penstock import formats
from penstock.cli.hints import in_options
from penstock.cli.program import COMMANDS, program


@cache
def texts() -> list[str]:
    """The texts of all hints. Values in f-strings become a word."""
    found: set[str] = set()
    for hint in hints():
        for node in ast.walk(ast.parse(hint, mode="eval")):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in node.values
                )
                found.add("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return sorted(found)


def commands() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= {f"{name} {more}": one for more, one in command.commands.items()}
        else:
            found[name] = command
    return found


KINDS = {
    "--read": {field.name for kind in formats.FORMATS for field in fields(kind.read_options)},
    "--option": {field.name for kind in formats.FORMATS for field in fields(kind.write_options)},
}


@pytest.mark.parametrize("name", commands())
def test_a_reworded_hint_names_options_of_the_command(name: str) -> None:
    known = {word for one in commands()[name].params for word in (*one.opts, *one.secondary_opts)}
    for hint in texts():
        reworded = in_options(hint, name.split(), program)
        own = set(re.findall(r"--[\w-]+", hint))
        words = re.findall(r"(?<![\w-])(--[a-z-]+)(?: ('[^']*'|[^\s,;)]+))?", reworded)
        for option, value in words:
            if option in own:
                continue
            assert option in known, (hint, reworded)
            if option in KINDS:
                (word,) = shlex.split(value)
                keyword, sign, text = word.partition("=")
                assert keyword in KINDS[option], (hint, reworded)
                assert sign and text, (hint, reworded)


@pytest.mark.parametrize("name", commands())
def test_keywords_with_a_value_are_marked_as_python(name: str) -> None:
    for hint in texts():
        # What is passed to other functions, such as pa.field, is Python in any case.
        reworded = re.sub(r"\([^()]*\)", "()", in_options(hint, name.split(), program))
        first = re.search(r"(?<![\w.('-])(?<!(?:read|tion) )\w+=(True|False|\"|\[)", reworded)
        if first is not None:
            assert "in Python, " in reworded[: first.start()], (hint, reworded)
