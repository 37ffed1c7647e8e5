"""`--storage-option` and `--target-storage-option`: options of the client of an object store. Other users of a machine
can see the words of a command, so a secret can be taken from the environment or from a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

_ENVIRONMENT = "env:"
_FILE = "@"


def _given(context: click.Context, option: click.Parameter, words: Sequence[str]) -> Any:
    """Return the options by name; None if there are none. Messages do not show values, which may be secrets."""
    del context
    shown = option.opts[0]
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not (name and sign):
            raise click.UsageError(f"{shown} takes KEY=VALUE, such as aws_region=eu-west-1")
        found[name] = _value(value, f"{shown} {name}")
    return found or None


def _value(text: str, where: str) -> str:
    if text.startswith(_ENVIRONMENT):
        name = text.removeprefix(_ENVIRONMENT)
        if name not in os.environ:
            raise click.UsageError(f"{where}: there is no environment variable {name}")
        return os.environ[name]
    if text.startswith(_FILE):
        path = text.removeprefix(_FILE)
        try:
            with open(path, encoding="utf-8") as file:
                return file.read().rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "is not text"
            raise click.UsageError(f"{where}: {path}: {reason}") from None
    return text


def _option(word: str, name: str, what: str) -> Callable[[Any], Any]:
    return click.option(
        word,
        name,
        multiple=True,
        metavar="KEY=VALUE",
        callback=_given,
        help=f"An option of the client of the object store {what}, such as aws_region=eu-west-1. The value env:NAME is "
        "that of an environment variable, and @FILE the contents of a file.",
    )


storage_option = _option("--storage-option", "storage_options", "of the source")
target_storage_option = _option(
    "--target-storage-option", "target_storage_options", "of the target"
)
