"""The command `penstock`: one file a command, on top of the public names alone.

click and rich are imported when the command runs, never by `import penstock`.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, and end the process with its exit status: 0 well, 1 a problem found
    in the data, 2 misuse."""
    try:
        from penstock.cli.program import program
    except KeyboardInterrupt:  # the program itself answers for what comes later
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    program.main(prog_name="penstock")
    raise AssertionError("click ends the process")
