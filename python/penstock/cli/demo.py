"""`penstock demo`: a tour on generated data. Every figure is measured while it runs."""

from __future__ import annotations

import os

import click

from penstock import tables
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
    help="Folder for the files, which are kept.",
)  # fmt: skip
@click.option(
    "--records", "num_records", type=click.IntRange(min=1000), default=200_000, show_default=True,
    help="Number of records to generate.",
)  # fmt: skip
@click.option("--no-tensorflow", is_flag=True, help="Leave out the comparison with TensorFlow.")
@json_option
def command(folder: str, num_records: int, no_tensorflow: bool, as_json: bool) -> None:
    """A tour: write, look, verify, index, read, break, repair, compress, convert.

    Generates a small dataset and shows what penstock does with it. The code and commands shown are
    the ones that run, and every figure is measured during the run. --json prints the figures only.
    Takes less than a minute.
    """
    from penstock.cli import tour
    from penstock.cli.narrate import Narrator

    _claim(folder)
    console = tables.console()
    console.quiet = as_json
    narrator = Narrator(console)
    before = os.getcwd()
    os.chdir(folder)  # so that the code shown needs no paths
    try:
        tour.run(narrator, num_records, with_tensorflow=not no_tensorflow)
    finally:
        os.chdir(before)
    if as_json:
        figures = [figure.to_dict() for figure in narrator.figures]
        document = {"folder": folder, "machine": tour.machine(), "figures": figures}
        output.emit({**document, "checks": narrator.checks})


def _claim(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    mark = os.path.join(folder, _MARK)
    if os.listdir(folder) and not os.path.exists(mark):
        raise click.UsageError(
            f"{folder} has files that no earlier demo made; name another folder with --folder",
            click.get_current_context(silent=True),
        )
    with open(mark, "w", encoding="utf-8") as file:
        file.write(_MARK_TEXT)
