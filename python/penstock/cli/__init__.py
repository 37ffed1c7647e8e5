"""The command `penstock`: one file per command, built on public names only. click and rich are imported when the
command runs, never by `import penstock`.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line, and exit with its status: 0 success, 1 a problem in the data, 2 misuse."""
    try:
        from penstock.cli.program import program
    except KeyboardInterrupt:  # the program handles later interrupts
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    program.main(prog_name="penstock")
    raise AssertionError("click ends the process")
