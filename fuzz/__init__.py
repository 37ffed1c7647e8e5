"""Fuzzing: one target a parser, as an ordinary function that the tests run, too.

    python -m fuzz walk --runs 100000 --seed 1

repeats what a test did. A run that ends in anything but data or a penstock error is a bug: the
seed and the number of the run are printed, and `--only N` repeats that run alone.
"""
