"""The costs of the process itself: start-up and memory."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

ALONE = "penstock: numpy and pyarrow alone"

CASES = (
    Case(
        name="import-time",
        says="seconds to import, in a new interpreter",
        size="",
        measure="seconds",
        limits={"": ALONE},
        goals=(
            Goal("penstock: import penstock", at_most=0.3),
            Goal("penstock: import penstock", at_most=0.05, above=ALONE),
        ),
    ),
    Case(
        name="memory-small",
        says="peak resident memory of a process that scans small records with two threads",
        size="small",
        measure="megabytes",
        goals=(
            Goal("penstock: plain, columns", at_most=300),
            Goal("penstock: plain, undecoded", at_most=300),
            Goal("penstock: gzip, 1 file, columns", at_most=300),
            Goal("penstock: gzip, 4 files, columns", at_most=300),
        ),
        fresh=True,
    ),
    Case(
        name="memory-large",
        says="the same with records of 100 KB",
        size="large",
        measure="megabytes",
        goals=(
            Goal("penstock: plain, columns", at_most=300),
            Goal("penstock: plain, undecoded", at_most=300),
        ),
        fresh=True,
    ),
)
