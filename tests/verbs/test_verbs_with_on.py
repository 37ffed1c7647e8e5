"""Every verb and command that runs long takes `on`, or is listed here with the reason."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import penstock as ps
from penstock.cli.program import program

PUBLIC = Path(ps.__file__).with_name("__init__.pyi").read_text()
REFUSE = {"sort", "dedupe"}
"""Verbs whose `on` is an error that names another way."""
WITHOUT = {
    "append": "one process extends a file",
    "decode_images": "the pictures are in memory",
    "encode_images": "the pictures are in memory",
    "split": "it opens views, and reads only the columns that decide",
    "write": "the data is in this process; penstock.ray.write writes datasets of Ray",
    "write_splits": "the records of all parts are found in one process; convert each part with on=",
    "verify_manifest": "no data is read",
}
WITHOUT_OPTION = {
    "append": "as above",
    "sort": "refused by the verb",
    "dedupe": "refused by the verb",
    "split": "as above",
    "plan": "no data is read",
    "bench formats": "it measures this machine",
    "bench images": "it measures this machine",
}


def verbs() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that run on several threads."""
    for name in re.findall(r"(\w+) as \1\b", PUBLIC):
        found = getattr(ps, name)
        if inspect.isfunction(found) and "threads" in inspect.signature(found).parameters:
            yield name, found


@pytest.mark.parametrize(("name", "verb"), [*verbs()], ids=[name for name, _ in verbs()])
def test_each_long_verb_takes_on_or_says_why_not(name: str, verb: Callable[..., Any]) -> None:
    takes = inspect.signature(verb).parameters
    assert ("on" in takes) != (name in WITHOUT)
    if "on" in takes:
        assert takes["on"].default is None
        assert re.search(r"^ +(.*, )?on(, .*)?: |as for `|on=", verb.__doc__ or "", re.MULTILINE)
        assert (takes["on"].annotation == "None") == (name in REFUSE)


def commands() -> Iterator[tuple[str, set[str]]]:
    """The commands that run on several threads, and their options."""

    def below(name: str, command: click.Command) -> Iterator[tuple[str, set[str]]]:
        if not isinstance(command, click.Group):
            yield name, {word for one in command.params for word in one.opts}
            return
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from below(f"{name} {word}".strip(), inner)

    for name, options in below("", program):
        if "--threads" in options or "--on" in options:
            yield name, options


@pytest.mark.parametrize(("name", "options"), [*commands()], ids=[name for name, _ in commands()])
def test_each_long_command_takes_on_or_says_why_not(name: str, options: set[str]) -> None:
    assert ("--on" in options) != (name in WITHOUT_OPTION)


def test_the_lists_name_what_there_is() -> None:
    assert (WITHOUT.keys() | REFUSE) <= {name for name, _ in verbs()}
    assert WITHOUT_OPTION.keys() <= {name for name, _ in commands()}


@pytest.mark.parametrize("name", sorted(REFUSE))
def test_what_cannot_run_on_a_cluster_names_another_way(name: str, tmp_path: Path) -> None:
    data = ps.write({"id": [3, 1, 2]}, str(tmp_path / "a.tfrecord")).paths[0]
    calls: dict[str, Callable[..., Any]] = {
        "sort": lambda **on: ps.sort(data, "id", into=str(tmp_path / "b.tfrecord"), **on),
        "dedupe": lambda **on: ps.dedupe(data, into=str(tmp_path / "b.tfrecord"), **on),
    }
    with pytest.raises(ps.UnsupportedError, match="so on= is not possible here") as caught:
        calls[name](on="ray")
    assert "or leave out on=" in str(caught.value.hint)
    assert not (tmp_path / "b.tfrecord").exists()
