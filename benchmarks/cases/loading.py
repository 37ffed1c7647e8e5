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
    Case(
        name="load-buckets",
        says="shuffled batches of 64 of 100,000 lists of 1 to 499 numbers, all padded to 512, or to the "
        "smallest of four lengths that a bucket's lists fit",
        size="",
        goals=(Goal("penstock: buckets", at_least=0.9, of="penstock: pad_to"),),
    ),
    Case(
        name="load-resume",
        says="seconds to open 1,000,000,000 records, go on from a state in shuffled order, and have "
        "the next batch of 256",
        size="",
        measure="seconds",
        goals=(
            Goal("penstock: loader, at record 1,000", at_most=0.1),
            Goal("penstock: loader, at record 1,000,000", at_most=0.1),
            Goal("penstock: loader, at record 500,000,000", at_most=0.1),
        ),
    ),
)
