"""Every verb and command takes the options of the store that it reads or writes."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import penstock as ps
from penstock.cli.program import program
from remote.servers.seaweed import SECRET, Seaweed

COUNT = 120
SHARDS = 3
PUBLIC = Path(ps.__file__).with_name("__init__.pyi").read_text()

SOURCES = {"source", "a", "b", "path"}
"""What verbs call the data that they read; `write` calls its target a path."""
TARGETS = {"into", "target"}


def verbs() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that take the name of data, or of new files."""
    for name in re.findall(r"(\w+) as \1\b", PUBLIC):
        found = getattr(ps, name)
        inside = vars(found) if inspect.ismodule(found) and name == "bench" else {name: found}
        for name, function in inside.items():
            if inspect.isfunction(function) and not name.startswith("_"):
                takes = set(inspect.signature(function).parameters)
                if takes & (SOURCES | TARGETS):
                    yield name, function


@pytest.mark.parametrize(("name", "function"), [*verbs()], ids=[name for name, _ in verbs()])
def test_each_verb_takes_a_storage_and_its_options(name: str, function: Callable[..., Any]) -> None:
    takes = set(inspect.signature(function).parameters)
    assert {"storage", "storage_options"} <= takes
    if takes & SOURCES and takes & TARGETS:
        assert {"target_storage", "target_storage_options"} <= takes


def commands() -> Iterator[tuple[str, click.Command]]:
    def below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield name, command
            return
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from below(f"{name} {word}".strip(), inner)

    yield from below("", program)


@pytest.mark.parametrize(("name", "command"), [*commands()], ids=[name for name, _ in commands()])
def test_each_command_with_data_takes_options_of_stores(name: str, command: click.Command) -> None:
    arguments = {one.name for one in command.params if isinstance(one, click.Argument)}
    options = {word for one in command.params for word in one.opts}
    if arguments & {"source", "file", "a"}:
        assert "--storage-option" in options
    if arguments & {"source"} and (arguments & {"target"} or "--into" in options):
        assert "--target-storage-option" in options
