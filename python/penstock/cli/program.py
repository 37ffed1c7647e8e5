"""The program: its commands, and how it reports errors.

Exit status: 0 success · 1 a problem in the data, or one that prevented the work · 2 misuse (an unknown option, a
missing file) · 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import click

from penstock.cli.options import Misuse

# The commands, with their lines in the overview. The file of a command is imported when it is run.
COMMANDS = {
    "info": "Show what a dataset consists of: files, records, bytes, index, fields.",
    "head": "Show the first records, or others by number.",
    "schema": "Show the fields of a record, and what they were inferred from.",
    "stats": "Summarise each field: nulls, lengths, ranges, images.",
    "layout": "Show which bytes of a file are what: headers, tables, one record, checksums.",
    "index": "Build indexes for random access.",
    "manifest": "List the files of a dataset in one file, which opens them all.",
    "fields": "Add, drop, rename and replace fields, or store new fields next to the files.",
    "verify": "Check every byte that has a checksum.",
    "repair": "Copy all intact records out of damaged files.",
    "append": "Add records to the end of an existing file or dataset.",
    "convert": "Write the records in another format; join, divide, filter, sample, shuffle files.",
    "split": "Divide the records into training, validation and test.",
    "dedupe": "Write the records without duplicates.",
    "sort": "Write the records in the order of a field.",
    "diff": "Show which fields and records of two datasets differ, by content.",
    "plan": "Show which records each rank reads in training, and what is dropped.",
    "bench": "Measure on your data which format, image codec and order suit it.",
    "clean": "List or remove what killed processes left, such as open uploads.",
    "demo": "A tour on generated data, with measured figures.",
    "cache": "Show or clear the folder that keeps parts of objects in stores.",
    "formats": "List the formats, those of other packages too, and what each can do.",
    "completion": "Print shell completion for bash, zsh and fish.",
}

EPILOG = """\b
Examples:
  penstock info train-*.tfrecord
  penstock head -n 3 train.tfrecord
  penstock verify --json train-*.tfrecord
  penstock convert train.tfrecord train.parquet

Every command has --json, and --help with more examples.
Exit status: 0 success, 1 a problem in the data, 2 misuse.
"""


class Program(click.Group):
    """The group of commands. Each is imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(self, args: Sequence[str] | None = None, *more: Any, **options: Any) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        _have_streams()
        _never_fail_to_print()
        options["standalone_mode"] = False
        before, warnings.formatwarning = warnings.formatwarning, _as_a_line
        try:
            status: Any = super().main(given, *more, **options)
            sys.stdout.flush()
        except BaseException as error:  # noqa: BLE001  _status_of raises bugs again
            if isinstance(error, (OSError, Misuse)) or getattr(error, "hint", None):
                from penstock.cli.hints import advise_in_options

                advise_in_options(error, given, self)
            status = _status_of(error, "--json" in given)
        finally:
            warnings.formatwarning = before
        sys.exit(status if isinstance(status, int) else 0)


def _as_a_line(message: Warning | str, *_: Any) -> str:
    """Format a warning without the line of Python that it comes from."""
    from penstock import describe

    return f"warning: {describe.escape(str(message))}\n"


def _have_streams() -> None:
    """Replace closed standard streams. Otherwise the next opened file would get the stream's number, and printed text
    would be written into it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  to the end


def _never_fail_to_print() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # On a terminal without UTF-8, escape a character instead of raising an error.
            stream.reconfigure(errors="backslashreplace")


def _status_of(error: BaseException, wants_json: bool) -> int:
    """Report an error on stderr, and also as JSON on stdout if `wants_json`. Return the exit status, or raise the error
    again if it is a bug of penstock."""
    import penstock as ps

    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        click.echo("interrupted", err=True)
        return 130
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        _leave_pipe()
        return 141  # as the shell reports a process that wrote to a closed pipe
    if not isinstance(error, (click.ClickException, ps.PenstockError, OSError)):
        raise error
    if wants_json:
        with suppress(OSError):  # stdout itself may have failed
            click.echo(json.dumps({"error": _facts(error)}, indent=2, default=str))
    if isinstance(error, click.ClickException):
        vars(error)["message"] = _printable(error.message)
        error.show()
        return 2
    if isinstance(error, ps.PenstockError):
        _print_error(str(error))
        return 1
    _print_error(_message(error))
    misuses = (FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError)
    return 2 if isinstance(error, (*misuses, IsADirectoryError)) else 1


def _facts(error: Any) -> dict[str, Any]:
    import penstock as ps

    if isinstance(error, ps.PenstockError):
        return {"type": type(error).__name__, "message": error.message, **error.facts()}
    if isinstance(error, click.ClickException):
        field = getattr(error, "field", None)
        facts = {"type": "UsageError", "message": error.format_message()}
        return facts if field is None else {**facts, "field": field}
    facts = {"type": type(error).__name__, "message": _message(error)}
    return facts if error.filename is None else {**facts, "file": os.fspath(error.filename)}


def _message(error: OSError) -> str:
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _print_error(message: str) -> None:
    click.echo(_printable(message), err=True)


def _printable(message: str) -> str:
    """Escape a message, so that no name from a file can control the terminal."""
    from penstock import tables

    return tables.printable(message)


def _leave_pipe() -> None:
    """Point stdout to the null device, so that Python's flush at exit does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@click.command(
    cls=Program,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Open the training data you already have, in place.",
)
@click.version_option(package_name="penstock", prog_name="penstock")
def program() -> None:
    """Run the command line."""
