"""Building Examples from columns and writing them, to memory and to a disk."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

CASES = (
    Case(
        name="write-small",
        says="build 1,000,000 Examples from columns and write one file, to tmpfs",
        size="small",
        limits={"": "limit: one write()"},
        goals=(Goal("penstock: 2 threads", at_least=25),),
    ),
    Case(
        name="write-small-disk",
        says="the same to a disk; penstock's figure includes its fsync, as a file that is to survive "
        "needs it; a bare write() without one is the page cache's speed",
        size="small",
        limits={"": "limit: one write()"},
        goals=(
            Goal("penstock: 2 threads", at_least=0.8, of="limit: one write()"),
            Goal("penstock: 2 threads", at_least=0.8, of="limit: one write() and fsync"),
        ),
    ),
)
