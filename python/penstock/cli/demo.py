"""`penstock demo`: a tour on data that it makes itself. Every figure is measured while it runs."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import click

from penstock.cli import output
from penstock.cli.options import json_option

_MARK = "made-by-penstock-demo.txt"
_MARK_TEXT = "The files in this folder were made by `penstock demo`, which may overwrite them.\n"


@click.command(
    "demo",
    epilog="""\b
Examples:
  penstock demo
  penstock demo --folder /tmp/demo-data --records 1000000
  penstock demo --json > figures.json
""",
)
@click.option(
    "--folder", type=click.Path(file_okay=False), default="demo-data", show_default=True,
    help="Where the files go; they stay there to play with.",
)  # fmt: skip
@click.option(
    "--records", "num_records", type=click.IntRange(min=1000), default=200_000, show_default=True,
    help="How many small records to make.",
)  # fmt: skip
@click.option("--no-tensorflow", is_flag=True, help="Leave out the comparison with TensorFlow.")
@json_option
def command(folder: str, num_records: int, no_tensorflow: bool, as_json: bool) -> None:
    """A tour: write, look, verify, index, read, break, repair, compress, convert.

    Makes a small data set and walks through what penstock does with it. The code and commands
    shown are those that run, and every figure is measured while you watch. --json gives the
    figures alone. Takes less than a minute.
    """
    from penstock.cli.tour import Tour

    _claim(folder)
    console = output.console()
    console.quiet = as_json
    with _inside(folder):
        tour = Tour(console, num_records, with_tensorflow=not no_tensorflow)
        tour.run()
    if as_json:
        document: dict[str, Any] = {
            "folder": folder,
            "machine": tour.machine(),
            "figures": [figure.to_dict() for figure in tour.figures],
            "checks": tour.checks,
        }
        output.emit(document)


def _claim(folder: str) -> None:
    """Make the folder ours, unless it holds files of somebody else."""
    os.makedirs(folder, exist_ok=True)
    mark = os.path.join(folder, _MARK)
    if os.listdir(folder) and not os.path.exists(mark):
        raise click.UsageError(
            f"{folder} holds files that are not of an earlier demo; name another with --folder",
            click.get_current_context(silent=True),
        )
    with open(mark, "w", encoding="utf-8") as file:
        file.write(_MARK_TEXT)


@contextmanager
def _inside(folder: str) -> Generator[None]:
    """Work in a folder for a while, so that the code shown needs no paths."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
