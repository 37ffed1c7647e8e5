"""The command `penstock`: one file a command, on top of the public names alone.

click and rich are imported when the command runs, never by `import penstock`.
"""

from __future__ import annotations

from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, and end the process with its exit status: 0 well, 1 a problem found
    in the data, 2 misuse."""
    from penstock.cli.program import program

    program.main(prog_name="penstock")
    raise AssertionError("click ends the process")
