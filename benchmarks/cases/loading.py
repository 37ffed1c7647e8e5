"""Batches for training, in shuffled order."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

GRAIN = "grain:"

CASES = (
    Case(
        name="load-small",
        says="shuffled batches of 256 records of 165 bytes: penstock decodes Examples into NumPy "
        "columns, the others give undecoded bytes",
        size="small",
        goals=(
            Goal("penstock: loader, 2 threads", at_least=10, of=GRAIN),
            Goal("penstock: loader, mmap, 2 threads", at_least=10, of=GRAIN),
        ),
    ),
    Case(
        name="load-large",
        says="the same with records of 100 KB",
        size="large",
        goals=(
            Goal("penstock: loader, 2 threads", at_least=2, of=GRAIN),
            Goal("penstock: loader, mmap, 2 threads", at_least=2, of=GRAIN),
        ),
    ),
)
