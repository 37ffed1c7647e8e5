"""Help is complete and right: its examples can be typed as shown."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from running import run, run_process

from penstock.cli.program import COMMANDS, program

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"


def command_named(name: str) -> click.Command:
    """A command by its name, or by two names: those of a group and of a command in it."""
    found: click.Command = program
    for word in name.split():
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    return found


def leaves() -> list[str]:
    """All commands that do something: the commands of each group, but not the groups."""
    named = {name: command_named(name) for name in COMMANDS}
    return [
        leaf
        for name, command in named.items()
        for leaf in (
            [f"{name} {inner}" for inner in command.commands]
            if isinstance(command, click.Group)
            else [name]
        )
    ]


def command_of(words: list[str]) -> str:
    """The command that an example is for."""
    pair = " ".join(words[1:3])
    return pair if pair in LEAVES else words[1]


LEAVES = leaves()


def options_of(command: click.Command) -> set[str]:
    given = {
        flag
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    return {flag for flag in given if flag.startswith("-")} | {"--help", "-h"}


def examples_in(text: str) -> list[str]:
    lines = [line.strip().removeprefix("$ ") for line in text.splitlines()]
    return [line for line in lines if line.startswith("penstock ")]


@pytest.mark.parametrize("name", sorted({*COMMANDS, *LEAVES}))
def test_help_of_every_command_has_examples_whose_options_exist(name: str) -> None:
    shown = run(*name.split(), "--help")
    assert shown.status == 0
    assert "Examples:" in shown.out
    examples = examples_in(command_named(name).epilog or "")
    assert examples
    for example in examples:
        words = shlex.split(example.split(" > ")[0])
        assert command_of(words).startswith(name)
        flags = {word for word in words[2:] if word.startswith("-")}
        assert flags <= options_of(command_named(command_of(words))), example


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_json_and_help_for_each_option(name: str) -> None:
    command = command_named(name)
    assert "--json" in options_of(command)
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_overview_lists_every_command_on_one_line_each() -> None:
    shown = run("--help")
    assert shown.status == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", shown.out, re.MULTILINE)


def test_guide_names_every_command_and_option() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"## {name}" in guide
    for name in LEAVES:
        for flag in options_of(command_named(name)) - {"-h"}:
            assert f"`{flag}" in guide or f"{flag}`" in guide, (name, flag)


def test_examples_of_the_guide_use_options_that_exist() -> None:
    for example in examples_in(GUIDE.read_text(encoding="utf-8")):
        words = shlex.split(re.split(r" [>|] ", example)[0])
        if words[1].startswith("-"):
            continue
        flags = {word.split("=")[0] for word in words[2:] if word.startswith("-")}
        assert flags <= options_of(command_named(command_of(words))), example


def test_importing_penstock_loads_neither_click_nor_rich() -> None:
    code = "import sys, penstock; print([m for m in ('click', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_overview_does_not_load_the_commands() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['penstock', '--help']\n"
        "from penstock.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "assert 'rich' not in sys.modules and 'penstock.cli.stats' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_calls_back_the_program(shell: str) -> None:
    shown = run("completion", shell)
    assert shown.status == 0
    assert "_PENSTOCK_COMPLETE" in shown.out
    assert run("completion", shell, "--json").document["script"] == shown.out


def test_completion_lists_commands() -> None:
    words = {"COMP_WORDS": "penstock sc", "COMP_CWORD": "1"}
    done = run_process(_PENSTOCK_COMPLETE="bash_complete", **words)
    assert done.out.split() == ["plain,schema"]
