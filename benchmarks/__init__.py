"""Measures penstock beside its rivals and the limits of the machine: ``python -m benchmarks``."""
