"""Fuzzing: one target for each parser, as an ordinary function that the tests run, too.

python -m fuzz walk --runs 100000 --seed 1

repeats what a test did. A run must end in data or in a penstock error; anything else is a bug. The seed and the
number of the run are then printed, and `--only N` repeats that run alone.
"""
