"""Some records of a table, by a condition, a split, or without duplicates; and all of them, sorted."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

CASES = tuple(
    Case(
        name=f"choose-{name}",
        says=f"{says}, from an Arrow file of 1,000,000 records and 45 MB",
        size="",
        goals=(Goal("penstock: 2 threads", at_least=0.8, of="polars: polars"),),
    )
    for name, says in (
        ("filter", "the records with label < 500 and score > 0.2, in memory"),
        ("split", "three parts of 80, 10 and 10 %, at random, in memory"),
        ("split-by", "the same by a hash of the id"),
        ("dedupe", "the first record of each name, written to an Arrow file"),
        ("dedupe-whole", "the first of equal records, written to an Arrow file"),
        ("sort-number", "sorted by an integer, written to an Arrow file"),
        ("sort-text", "sorted by a text, written to an Arrow file"),
    )
)
